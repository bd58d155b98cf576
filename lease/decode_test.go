package lease

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDecodeRejects(t *testing.T) {
	good := Encode(corpus()["gossip"])
	mutate := func(change func(*Message)) []byte {
		m := corpus()["gossip"]
		change(m)
		return Encode(m)
	}
	record := func(change func(*Record)) []byte { return mutate(func(m *Message) { change(m.Records[0]) }) }
	for _, tc := range []struct {
		name string
		wire []byte
		want error
	}{
		{"nothing", nil, ErrMalformed},
		{"a version alone", []byte{WireVersion}, ErrMalformed},
		{"an earlier version", append([]byte{MinWireVersion - 1}, good[1:]...), ErrVersion},
		{"a later version", append([]byte{WireVersion + 1}, good[1:]...), ErrVersion},
		{"a later version of another form", []byte{WireVersion + 1, 0xff}, ErrVersion},
		{"version 255", append([]byte{255}, good[1:]...), ErrVersion},
		{"a trailing byte", append(bytes.Clone(good), 0), ErrMalformed},
		{"two messages", append(bytes.Clone(good), good...), ErrMalformed},
		{"longer than any message", make([]byte, MaxMessageBytes+1), ErrMalformed},
		{"no id", record(func(r *Record) { r.ID = "" }), ErrMalformed},
		{"an id out of bounds", record(func(r *Record) { r.ID = "a b" }), ErrMalformed},
		{"an absurd incarnation", record(func(r *Record) { r.Incarnation = maxIncarnation + 1 }), ErrMalformed},
		{"the greatest incarnation", record(func(r *Record) { r.Incarnation = math.MaxUint64 }), ErrMalformed},
		{"too much weight", record(func(r *Record) { r.Weight = MaxWeight + 1 }), ErrMalformed},
		{"negative capacity", record(func(r *Record) { r.Capacity = -1 }), ErrMalformed},
		{"a long address", record(func(r *Record) { r.Addr = strings.Repeat("x", MaxAddrBytes+1) }), ErrMalformed},
		{"a broken rune", record(func(r *Record) { r.Zone = "\xff" }), ErrMalformed},
		{"an empty label", record(func(r *Record) { r.Labels = map[string]string{"": "x"} }), ErrMalformed},
		{"too many labels", record(func(r *Record) { r.Labels = manyLabels(MaxLabels+1, 1) }), ErrMalformed},
		{"a long record", record(func(r *Record) { r.Labels = manyLabels(MaxLabels, 60) }), ErrMalformed},
		{"too many records", mutate(func(m *Message) {
			for len(m.Records) <= MaxNodes {
				m.Records = append(m.Records, rec("x", 1))
			}
		}), ErrMalformed},
		{"too many rows", mutate(func(m *Message) { m.Heartbeats = slices.Repeat(m.Heartbeats[:1], MaxNodes+1) }), ErrMalformed},
		{"too many failure reports", mutate(func(m *Message) {
			m.FailureReports = slices.Repeat([]FailureReport{{Subject: 1, Watcher: 2, At: m.Stamp, Evidence: Refused}}, maxReported+1)
		}), ErrMalformed},
		{"too many pulled records", mutate(func(m *Message) { m.PullRecords = make([]Handle, MaxNodes+1) }), ErrMalformed},
		{"too many pulled leases", mutate(func(m *Message) { m.PullLeases = make([]Handle, MaxNodes+1) }), ErrMalformed},
		{"too many buckets", mutate(func(m *Message) { m.PullBuckets = make([]BucketDigest, maxBuckets+1) }), ErrMalformed},
		{"too many buckets of ages", mutate(func(m *Message) { m.Ages = make([]Bucket, maxBuckets+1) }), ErrMalformed},
		{"too much extra", mutate(func(m *Message) { m.Extra = make([]byte, MaxExtraBytes+1) }), ErrMalformed},
		{"a failure report without evidence", mutate(func(m *Message) { m.FailureReports = make([]FailureReport, 1) }), ErrMalformed},
		{"a failure report of half the length", append(Encode(&Message{Stamp: minStart}), sectionFailureReports, 2, 1, 0), ErrMalformed},
		{"no stamp", mutate(func(m *Message) { m.Stamp = 0 }), ErrMalformed},
		{"an absurd stamp", mutate(func(m *Message) { m.Stamp = maxStamp + 1 }), ErrMalformed},
		{"a negative stamp", mutate(func(m *Message) { m.Stamp = -1 }), ErrMalformed},
		{"a heartbeat at 0", mutate(func(m *Message) { m.Heartbeats[0].At = 0 }), ErrMalformed},
		{"a heartbeat before 0", mutate(func(m *Message) { m.Heartbeats[0].At = -1 }), ErrMalformed},
		{"an index out of range", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Bits: 3, Index: 8}}} }), ErrMalformed},
		{"an index of no bits", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Index: 1}}} }), ErrMalformed},
		{"too many bits", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Bits: maxBits + 1}}} }), ErrMalformed},
		{"64 bits", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Bits: 64}}} }), ErrMalformed},
		{"too many bits of ages", mutate(func(m *Message) { m.Ages[0].Bits = maxBits + 1 }), ErrMalformed},
		{"an index of ages out of range", mutate(func(m *Message) { m.Ages[1].Index = 2 }), ErrMalformed},
		{"ages of more nodes than there are bytes", mutate(func(m *Message) { m.Ages[1].Nodes = 1 }), ErrMalformed},
		{"ages of too many nodes", mutate(func(m *Message) {
			m.Ages[0] = Bucket{Nodes: MaxNodes + 1, ages: make([]byte, MaxNodes), same: make([]byte, MaxNodes)}
		}), ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if m, err := Decode(tc.wire); !errors.Is(err, tc.want) || m != nil {
				t.Errorf("Decode = %v, %v, want %v", m, err, tc.want)
			}
		})
	}
}

// A message that lost its end is refused, or is shorter by whole sections.
func TestDecodeOfCutMessages(t *testing.T) {
	good := Encode(corpus()["gossip"])
	whole := make(map[int]bool)
	for r := (reader{b: good[1:]}); len(r.b) > 0; r.take(r.uvarint(MaxMessageBytes)) {
		whole[len(good)-len(r.b)] = true
		r.uvarint(math.MaxUint64)
	}
	for n := 1; n < len(good); n++ {
		_, err := Decode(good[:n])
		if want := n == 1 || !whole[n]; errors.Is(err, ErrMalformed) != want {
			t.Fatalf("cut at byte %d: %v", n, err)
		}
	}
}

func manyLabels(n, size int) map[string]string {
	labels := make(map[string]string)
	for i := range n {
		labels[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", size)
	}
	return labels
}

// hostile returns messages that no program writes, many of which claim more content than
// they have.
func hostile() map[string][]byte {
	build := func(sections ...func(w *writer)) []byte {
		w := &writer{b: []byte{WireVersion}}
		for _, s := range sections {
			s(w)
		}
		return w.b
	}
	section := func(kind uint64, body func(w *writer)) func(w *writer) {
		return func(w *writer) { w.section(kind, func() { body(w) }) }
	}
	fixed := func(n int) func(w *writer) { return func(w *writer) { w.b = append(w.b, make([]byte, n)...) } }
	numbers := func(numbers ...uint64) func(w *writer) {
		return func(w *writer) {
			for _, v := range numbers {
				w.uvarint(v)
			}
		}
	}
	headAt := func(stamp uint64) func(w *writer) {
		return section(sectionHead, func(w *writer) { fixed(10)(w); numbers(stamp, 0, 0)(w) })
	}
	head := headAt(1 << 41)
	row := func(fields ...uint64) func(w *writer) {
		return section(sectionRows, func(w *writer) {
			fixed(4)(w)
			body := &writer{}
			fixed(6)(body)
			numbers(fields...)(body)
			w.b = append(append(w.b, byte(len(body.b))), body.b...)
		})
	}
	const most = math.MaxUint64
	return map[string][]byte{
		"a section beyond the end":        build(head, numbers(sectionRows, 1)),
		"a section of 2^64 bytes":         build(head, numbers(sectionRows, most)),
		"a section within the bounds":     build(head, numbers(sectionRows, MaxMessageBytes)),
		"an unknown section beyond":       build(head, numbers(99, MaxMessageBytes)),
		"a kind without a length":         build(head, numbers(sectionPullRecords)),
		"a number without an end":         build(head, func(w *writer) { w.b = append(w.b, bytes.Repeat([]byte{0x80}, 11)...) }),
		"no head":                         build(section(sectionPullRecords, fixed(6))),
		"an unknown section alone":        build(section(50, fixed(6))),
		"a head behind another section":   build(section(sectionPullRecords, fixed(6)), head),
		"a short head":                    build(section(sectionHead, fixed(9))),
		"an empty head":                   build(section(sectionHead, fixed(0))),
		"a head without a time":           build(section(sectionHead, func(w *writer) { fixed(10)(w); numbers(1, 0)(w) })),
		"two heads":                       build(head, head),
		"pulled records twice":            build(head, section(sectionPullRecords, fixed(6)), section(sectionPullRecords, fixed(6))),
		"an unknown section twice":        build(head, section(50, fixed(1)), section(50, fixed(1))),
		"an unknown kind beyond 63 twice": build(head, section(64, fixed(1)), section(64, fixed(1))),
		"the last kind twice":             build(head, section(most, fixed(0)), section(most, fixed(0))),
		"a kind twice, not in a row":      build(head, section(64, fixed(0)), section(65, fixed(0)), section(64, fixed(0))),
		"sections out of order":           build(head, section(sectionPullLeases, fixed(6)), section(sectionPullRecords, fixed(6))),
		"the kind 0":                      build(head, section(0, fixed(1))),
		"the stamp 2^64-1":                build(headAt(most)),
		"a stamp out of range":            build(headAt(maxStamp + 1)),
		"the stamp 0":                     build(headAt(0)),
		"rows without a table":            build(head, section(sectionRows, fixed(3))),
		"a row beyond the end":            build(head, section(sectionRows, func(w *writer) { fixed(4)(w); w.b = append(w.b, 255) })),
		"an empty row":                    build(head, section(sectionRows, fixed(5))),
		"many empty rows":                 build(head, section(sectionRows, fixed(64<<10))),
		"a row without fields":            build(head, row()),
		"a row with a wide head":          build(head, row(8, 1, 0, 0, 0, 0)),
		"a row with a wide version":       build(head, row(0, math.MaxUint32+1, 0, 0, 0, 0)),
		"a row of a wide age":             build(head, row(0, 1, uint64(maxAge)+1, 0, 0, 0)),
		"a row of the age 2^64-1":         build(head, row(0, 1, most, 0, 0, 0)),
		"a row of long ago":               build(head, row(0, 1, 0, 1<<41, 0, 0)),
		"a row of 2^64-1 before":          build(head, row(0, 1, 0, most, 0, 0)),
		"a row from before time":          build(headAt(5), row(0, 1, 5, 0, 0, 0)),
		"a row with a wide clock":         build(head, row(0, 1, 0, 0, most-1, 0)),
		"a row with a wide load":          build(head, row(0, 1, 0, 0, 0, most)),
		"a row without its table":         build(head, row(1, 1, 0, 0, 0, 0)),
		"a record beyond the end":         build(head, section(sectionRecords, numbers(MaxRecordBytes))),
		"a record of 2^64-1 bytes":        build(head, section(sectionRecords, numbers(most))),
		"an empty record":                 build(head, section(sectionRecords, numbers(0))),
		"many empty records":              build(head, section(sectionRecords, fixed(64<<10))),
		"a text beyond the record":        build(head, section(sectionRecords, numbers(3, MaxIDBytes, 'x', 'x'))),
		"labels that are not there":       build(head, section(sectionRecords, numbers(11, 1, 'x', 0, 0, 0, 0, 0, 0, 0, MaxLabels, 0))),
		"ages of nodes that do not come":  build(head, section(sectionAges, func(w *writer) { numbers(0, 0, MaxNodes)(w); fixed(6)(w) })),
		"ages of 2^64-1 nodes":            build(head, section(sectionAges, func(w *writer) { numbers(0, 0, most)(w); fixed(6)(w) })),
		"many short buckets of ages":      build(head, section(sectionAges, fixed(64<<10))),
		"half a handle":                   build(head, section(sectionPullRecords, fixed(7))),
		"an index beyond its bits":        build(head, section(sectionPullBuckets, numbers(2, 4))),
		"half a bucket":                   build(head, section(sectionPullBuckets, numbers(2))),
		"half a challenge":                build(head, section(sectionChallenge, fixed(7))),
		"half an echo":                    build(head, section(sectionEcho, fixed(7))),
		"cordons without a digest":        build(head, section(sectionCordons, fixed(4))),
		"a cordon beyond the end":         build(head, section(sectionCordons, func(w *writer) { fixed(5)(w); numbers(9)(w) })),
		"an empty cordon":                 build(head, section(sectionCordons, fixed(6))),
		"many empty cordons":              build(head, section(sectionCordons, fixed(64<<10))),
		"a cordon of 2^64-1 ms":           build(head, section(sectionCordons, func(w *writer) { fixed(5)(w); numbers(14, 1, 'x', 0, most, 0)(w) })),
		"a cordon of two days":            build(head, section(sectionCordons, func(w *writer) { fixed(5)(w); numbers(11, 1, 'x', 0, uint64(maxAge), uint64(maxAge), 0)(w) })),
		"a cordon of many lines":          build(head, section(sectionCordons, func(w *writer) { fixed(5)(w); numbers(7, 1, 'x', 0, 1, 0, 1, '\n')(w) })),
	}
}

func TestDecodeRejectsHostileForms(t *testing.T) {
	for name, wire := range hostile() {
		if m, err := Decode(wire); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// decodeBytes returns how many bytes Decode allocates.
func decodeBytes(wire []byte) (allocated uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Decode(wire)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// A decoder allocates by the size of a message, not by its claims: at most 50 times the
// message's bytes, which records with short labels take, and 16 KiB.
func TestDecodeAllocationIsBounded(t *testing.T) {
	const factor, constant = 50, 16 << 10
	messages := hostile()
	stamp := stampAt(epoch)
	rows := &Message{Stamp: stamp, SentAt: epoch}
	for range 100_000 {
		rows.Heartbeats = append(rows.Heartbeats, Heartbeat{At: stamp, Load: NoLoad})
	}
	records := &Message{Stamp: stamp, SentAt: epoch}
	for range MaxNodes {
		records.Records = append(records.Records, &Record{Profile: Profile{ID: "x"}})
	}
	labels := map[string]string{}
	for i := range MaxLabels {
		labels[string(rune('a'+i))] = ""
	}
	labeled := &Message{Stamp: stamp, SentAt: epoch}
	for range MaxNodes {
		labeled.Records = append(labeled.Records, &Record{Profile: Profile{ID: "x", Labels: labels}})
	}
	messages["rows"], messages["records"], messages["labels"] = Encode(rows), Encode(records), Encode(labeled)
	messages["handles"] = Encode(&Message{Stamp: stamp, SentAt: epoch, PullRecords: make([]Handle, MaxNodes), PullLeases: make([]Handle, MaxNodes)})
	messages["buckets"] = Encode(&Message{Stamp: stamp, SentAt: epoch, PullBuckets: make([]BucketDigest, maxBuckets), Ages: make([]Bucket, maxBuckets)})
	sections := writer{b: Encode(&Message{Stamp: stamp, SentAt: epoch})}
	for kind := range uint64(100_000) {
		sections.section(64+kind, func() {})
	}
	messages["unknown sections"] = sections.b
	messages["extra"] = Encode(&Message{Stamp: stamp, SentAt: time.UnixMilli(0), Extra: make([]byte, MaxExtraBytes)})
	for name, wire := range messages {
		got, err := decodeBytes(wire)
		if got > factor*uint64(len(wire))+constant {
			t.Errorf("%s: %d bytes take %d (%v)", name, len(wire), got, err)
		}
		if len(wire) > constant {
			t.Logf("%s: %d bytes take %d (%.0f×), %v", name, len(wire), got, float64(got)/float64(len(wire)), err)
		}
	}
}
