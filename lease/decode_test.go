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

	"github.com/roost-cluster/roost/internal/wire"
)

func TestDecodeRejects(t *testing.T) {
	good := Encode(corpus()["gossip"])
	mutate := func(change func(*Message)) []byte {
		m := corpus()["gossip"]
		change(m)
		return Encode(m)
	}
	versioned := func(version byte) []byte {
		b := bytes.Clone(good)
		b[bytes.IndexByte(b, WireVersion)] = version
		return b
	}
	record := func(change func(*Record)) []byte { return mutate(func(m *Message) { change(m.Records[0]) }) }
	for _, tc := range []struct {
		name string
		wire []byte
		want error
	}{
		{"nothing", nil, ErrMalformed},
		{"no array", text("x"), ErrMalformed},
		{"an empty array", []byte{0x90}, ErrMalformed},
		{"no version", []byte{0x91, 0xc0}, ErrMalformed},
		{"a negative version", []byte{0x91, 0xff}, ErrMalformed},
		{"a version alone", []byte{0x91, WireVersion}, ErrMalformed},
		{"an earlier version", versioned(MinWireVersion - 1), ErrVersion},
		{"a later version", versioned(WireVersion + 1), ErrVersion},
		{"a later version of another form", []byte{0x92, WireVersion + 1, 0xc1}, ErrVersion},
		{"version 127", versioned(127), ErrVersion},
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
		{"no stamp", mutate(func(m *Message) { m.Stamp = 0 }), ErrMalformed},
		{"an absurd stamp", mutate(func(m *Message) { m.Stamp = maxStamp + 1 }), ErrMalformed},
		{"a negative stamp", mutate(func(m *Message) { m.Stamp = -1 }), ErrMalformed},
		{"a heartbeat at 0", mutate(func(m *Message) { m.Heartbeats[0].At = 0 }), ErrMalformed},
		{"a heartbeat before 0", mutate(func(m *Message) { m.Heartbeats[0].At = -1 }), ErrMalformed},
		{"too many bits", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Bits: maxBits + 1}}} }), ErrMalformed},
		{"no bucket", mutate(func(m *Message) { m.PullBuckets = []BucketDigest{{BucketID: BucketID{Bits: 64}}} }), ErrMalformed},
		{"too many bits of ages", mutate(func(m *Message) { m.Ages[0].Bits = maxBits + 1 }), ErrMalformed},
		{"no bucket of ages", mutate(func(m *Message) { m.Ages[1].BucketID = BucketID{Bits: 64} }), ErrMalformed},
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

// Decode rejects a truncated message.
func TestDecodeOfCutMessages(t *testing.T) {
	for name, m := range corpus() {
		good := Encode(m)
		for n := range good {
			if m, err := Decode(good[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s, cut at byte %d: %+v, %v", name, n, m, err)
			}
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

// These are the positions of the fields.
const (
	fieldTable = iota + headFields
	fieldHandles
	fieldRows
	fieldAges
	fieldCluster
	fieldExtra
	fieldMissed
	fieldRecords
	fieldFailureReports
	fieldCordoned
	fieldCordons
	fieldPullRecords
	fieldPullLeases
	fieldPullBuckets
	fieldChallenge
	fieldEcho
	fieldHandoff
	messageFields
)

// hostile returns malformed messages that no release writes. Many of them claim more content than they have.
func hostile() map[string][]byte {
	type values = func(w *wire.Writer)
	numbers := func(numbers ...uint64) values {
		return func(w *wire.Writer) {
			for _, v := range numbers {
				w.Uint(v)
			}
		}
	}
	raw := func(b ...byte) values { return func(w *wire.Writer) { w.Raw(b) } }
	bin := func(n int) values { return func(w *wire.Writer) { w.Bytes(make([]byte, n)) } }
	array := func(elements ...values) values {
		return func(w *wire.Writer) {
			w.Array(len(elements))
			for _, e := range elements {
				e(w)
			}
		}
	}
	headAt := func(stamp uint64) []values {
		return []values{numbers(WireVersion), numbers(0), bin(6), numbers(stamp), numbers(0), numbers(0)}
	}
	message := func(head []values, fields ...values) []byte {
		return wire.Append(nil, array(append(head, fields...)...))
	}
	at := func(field int, content ...values) []byte { // a message with a head and one more field
		head := headAt(1 << 41)
		for len(head) < field {
			head = append(head, raw(0xc0))
		}
		return message(head, content...)
	}
	row := func(fields ...values) []byte { return at(fieldTable, numbers(0), bin(6), array(array(fields...))) }
	record := func(fields ...values) []byte { return at(fieldRecords, array(array(fields...))) }
	text := func(s string) values { return func(w *wire.Writer) { w.Text(s) } }
	cordon := func(lasts, longer uint64, reason string) []byte {
		return at(fieldCordons, array(array(text("x"), numbers(0), numbers(lasts), numbers(longer), text(reason))))
	}
	n := numbers
	const most = math.MaxUint64
	instead := func(wire []byte, last ...byte) []byte { return append(wire[:len(wire)-1:len(wire)-1], last...) }
	nested := func(wire []byte) []byte {
		return instead(wire, bytes.Repeat([]byte{0x91}, MaxMessageBytes-len(wire)+1)...)
	}
	unknown := at(messageFields, array()) // an unknown field that is an empty array
	return map[string][]byte{
		"an array of 2^32-1 elements":     {0xdd, 0xff, 0xff, 0xff, 0xff, WireVersion},
		"an array of 2^31 elements":       {0xdd, 0x80, 0, 0, 0, WireVersion},
		"a map":                           {0x81, WireVersion, 0},
		"nested arrays alone":             nested([]byte{0}),
		"nested arrays behind the fields": nested(unknown),
		"nested arrays as extra":          nested(at(fieldExtra, array())),
		"nested arrays in a row":          nested(row(n(1), n(1), n(0), n(0), n(0), n(0), n(0), array())),
		"nested arrays in a bucket":       nested(at(fieldAges, array(array(n(1), n(0), bin(6), array())))),
		"nested maps":                     instead(unknown, bytes.Repeat([]byte{0x81, 0}, 1<<20)...),
		"an unknown array of 2^32-1":      instead(unknown, 0xdd, 0xff, 0xff, 0xff, 0xff),
		"an unknown map of 2^32-1":        instead(unknown, 0xdf, 0xff, 0xff, 0xff, 0xff),
		"unknown bytes of 2^32-1":         instead(unknown, 0xc6, 0xff, 0xff, 0xff, 0xff),
		"an unknown text of 2^32-1":       instead(unknown, 0xdb, 0xff, 0xff, 0xff, 0xff),
		"an unknown extension of 2^32-1":  instead(unknown, 0xc9, 0xff, 0xff, 0xff, 0xff),
		"an unknown code":                 instead(unknown, 0xc1),
		"a field more than elements":      append(unknown, 0xc0),
		"a head of five fields":           message(headAt(1 << 41)[:5]),
		"an empty from":                   message([]values{n(1), n(0), bin(0), n(1 << 41), n(0), n(0)}),
		"a long from":                     message([]values{n(1), n(0), bin(7), n(1 << 41), n(0), n(0)}),
		"a text as from":                  message([]values{n(1), n(0), text("123456"), n(1 << 41), n(0), n(0)}),
		"a head of nil":                   message([]values{n(1), n(0), bin(6), raw(0xc0), n(0), n(0)}),
		"settings of -1":                  message([]values{n(1), raw(0xff), bin(6), n(1 << 41), n(0), n(0)}),
		"settings of a float":             message([]values{n(1), raw(0xca, 0, 0, 0, 0), bin(6), n(1 << 41), n(0), n(0)}),
		"wide settings":                   message([]values{n(1), n(1 << 32), bin(6), n(1 << 41), n(0), n(0)}),
		"a wall clock beyond":             message([]values{n(1), n(0), bin(6), n(1 << 41), n(0), n(maxWall)}),
		"a wall clock of 2^64-1":          message([]values{n(1), n(0), bin(6), n(1 << 41), n(0), n(most)}),
		"the stamp 2^64-1":                message(headAt(most)),
		"a stamp out of range":            message(headAt(maxStamp + 1)),
		"the stamp 0":                     message(headAt(0)),
		"a stamp of before":               message(headAt(uint64(minStart - 1))),
		"rows without handles":            at(fieldRows, array(array(n(1), n(1), n(0), n(0)))),
		"handles without rows":            at(fieldHandles, bin(6)),
		"many handles without rows":       at(fieldHandles, bin(6*MaxNodes)),
		"fewer rows than handles":         at(fieldHandles, bin(12), array(array(n(1), n(1), n(0), n(0)))),
		"more rows than handles":          at(fieldHandles, bin(6), array(array(n(1), n(1), n(0), n(0)), array(n(1), n(1), n(0), n(0)))),
		"rows of 2^32-1":                  at(fieldHandles, bin(6), raw(0xdd, 0xff, 0xff, 0xff, 0xff)),
		"half a row handle":               at(fieldHandles, bin(7), array(array(n(1), n(1), n(0), n(0)))),
		"an empty row":                    row(),
		"a row of three fields":           row(n(1), n(1), n(0)),
		"a row that is a number":          at(fieldHandles, bin(6), array(n(0))),
		"a row without a state":           row(n(0), n(1), n(0), n(0)),
		"a row with a wide state":         row(n(uint64(Left)+1), n(1), n(0), n(0)),
		"a row with a wide version":       row(n(1), n(math.MaxUint32+1), n(0), n(0)),
		"a row of a wide age":             row(n(1), n(1), n(uint64(maxAge)+1), n(0)),
		"a row of the age -1":             row(n(1), n(1), raw(0xff), n(0)),
		"a row of the age 2^64-1":         row(n(1), n(1), n(most), n(0)),
		"a row of long ago":               row(n(1), n(1), n(0), n(0), n(0), n(1<<41)),
		"a row of 2^64-1 before":          row(n(1), n(1), n(0), n(0), n(0), n(most)),
		"a row from before time": message(headAt(uint64(minStart)), n(0), bin(6),
			array(array(n(1), n(1), n(5), n(0), n(0), n(uint64(minStart)-5)))),
		"a row with a wide clock":     row(n(1), n(1), n(0), n(0), n(uint64(maxClock/ms)+1)),
		"a row with a clock of -2^63": row(n(1), n(1), n(0), n(0), raw(0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0)),
		"a row with a wide load":      row(n(1), n(1), n(0), n(most)),
		"a row with the load -2":      row(n(1), n(1), n(0), raw(0xfe)),
		"a row with a wide table":     row(n(1), n(1), n(0), n(0), n(0), n(0), n(1<<32)),
		"records of 2^32-1":           at(fieldRecords, raw(0xdd, 0xff, 0xff, 0xff, 0xff)),
		"records of 16 MiB":           at(fieldRecords, raw(0xdd, 0x01, 0, 0, 0)),
		"an empty record":             record(),
		"a record of nine fields":     record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0), n(1)),
		"many empty records": at(fieldRecords,
			func(w *wire.Writer) { w.Array(MaxNodes); w.Raw(bytes.Repeat([]byte{0x90}, MaxNodes)) }),
		"a text beyond the record": at(fieldRecords, array(), raw(0xd9, 0xff, 'x')),
		"labels that are not there": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0),
			n(1), n(1), text(""), n(0), bin(0), raw(0xc2), raw(0x80|MaxLabels-1)),
		"labels of 2^32-1": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0),
			n(1), n(1), text(""), n(0), bin(0), raw(0xc2), raw(0xdf, 0xff, 0xff, 0xff, 0xff)),
		"a label twice": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0),
			n(1), n(1), text(""), n(0), bin(0), raw(0xc2), raw(0x82, 0xa1, 'k', 0xa0, 0xa1, 'k', 0xa0)),
		"labels out of order": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0),
			n(1), n(1), text(""), n(0), bin(0), raw(0xc2), raw(0x82, 0xa1, 'l', 0xa0, 0xa1, 'k', 0xa0)),
		"an id of bytes":        record(bin(1), n(1), n(1), text(""), text(""), text(""), n(0), n(0), n(1), n(1)),
		"a wire version of 256": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0), n(1), n(256)),
		"a handoff of 1": record(text("x"), n(1), n(1), text(""), text(""), text(""), n(0), n(0),
			n(1), n(1), text(""), n(0), bin(0), n(1)),
		"ages of nodes that do not come": at(fieldAges, array(array(n(1), n(MaxNodes), bin(6)))),
		"ages of 2^64-1 nodes":           at(fieldAges, array(array(n(1), n(most), bin(6)))),
		"many empty buckets of ages": at(fieldAges,
			func(w *wire.Writer) { w.Array(maxBuckets); w.Raw(bytes.Repeat([]byte{0x90}, maxBuckets)) }),
		"half a handle":                  at(fieldPullRecords, bin(7)),
		"handles beyond the end":         at(fieldPullRecords, raw(0xc6, 0, 0x5f, 0xff, 0xff)),
		"a bucket of no number":          at(fieldPullBuckets, array(array(n(0), bin(0)))),
		"a bucket of a wide number":      at(fieldPullBuckets, array(array(n(1<<(maxBits+1)), bin(0)))),
		"half a bucket":                  at(fieldPullBuckets, array(array(n(1)))),
		"half a hash":                    at(fieldPullBuckets, array(array(n(1), bin(5)))),
		"too many hashes":                at(fieldPullBuckets, array(array(n(1), bin(4*maxHashes+4)))),
		"half a failure report":          at(fieldFailureReports, array(array(bin(12), n(0)))),
		"a failure report of one handle": at(fieldFailureReports, array(array(bin(6), n(0), n(1)))),
		"a challenge of -1":              at(fieldChallenge, raw(0xff)),
		"an echo of text":                at(fieldEcho, text("x")),
		"founders out of order":          at(fieldCluster, raw(0xc4, 12, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1)),
		"a founder twice":                at(fieldCluster, bin(12)),
		"too many founders":              at(fieldCluster, raw(append([]byte{0xc4, 6 * (MaxFounders + 1)}, ascending(MaxFounders+1)...)...)),
		"an absurd time of missing":      at(fieldMissed, n(maxStamp+1)),
		"an extra beyond the end":        at(fieldExtra, raw(0xc6, 0, 0x1f, 0xff, 0xff)),
		"a handoff beyond the end":       at(fieldHandoff, raw(0xc6, 0, 0x5f, 0xff, 0xff)),
		"an empty cordon":                at(fieldCordons, array(array())),
		"many empty cordons":             at(fieldCordons, func(w *wire.Writer) { w.Array(64 << 10); w.Raw(bytes.Repeat([]byte{0x90}, 64<<10)) }),
		"a cordon of 2^64-1 ms":          cordon(most, 0, ""),
		"a cordon of two days":           cordon(uint64(maxAge), uint64(maxAge), ""),
		"a cordon of many lines":         cordon(1, 0, "\n"),
	}
}

// ascending returns n different handles, packed.
func ascending(n int) (b []byte) {
	for i := range n {
		b = append(b, 0, 0, 0, 0, 0, byte(i))
	}
	return b
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

// Decode allocates memory in proportion to the real size of a message, not to the sizes that it claims: at
// most 16 KiB plus 50 times the message's bytes, which records with short labels need.
func TestDecodeAllocationIsBounded(t *testing.T) {
	const factor, constant = 50, 16 << 10
	messages := hostile()
	stamp := stampAt(epoch)
	rows := &Message{Stamp: stamp, SentAt: epoch}
	for range MaxNodes {
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
	messages["handles"] = Encode(&Message{
		Stamp:       stamp,
		SentAt:      epoch,
		PullRecords: make([]Handle, MaxNodes),
		PullLeases:  make([]Handle, MaxNodes),
	})
	messages["buckets"] = Encode(&Message{
		Stamp:       stamp,
		SentAt:      epoch,
		PullBuckets: make([]BucketDigest, maxBuckets),
		Ages:        make([]Bucket, maxBuckets),
	})
	messages["unknown fields"] = grow(Encode(&Message{Stamp: stamp, SentAt: epoch}), messageFields,
		bytes.Split(bytes.Repeat([]byte{0xc0}, 100_000), nil)...)
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
