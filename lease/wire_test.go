package lease

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/wire"
)

func drawRecord(t *rapid.T) *Record {
	id := rapid.StringMatching(`[][A-Za-z0-9._:-]{1,64}`).Draw(t, "id")
	return &Record{
		Profile: Profile{
			ID: NodeID(id), Incarnation: rapid.Uint64Range(0, maxIncarnation).Draw(t, "incarnation"),
			Addr: rapid.StringN(0, -1, 100).Draw(t, "addr"), APIAddr: rapid.StringN(0, -1, 100).Draw(t, "api addr"),
			Zone: rapid.StringN(0, -1, 64).Draw(t, "zone"), Weight: rapid.Uint32Range(0, MaxWeight).Draw(t, "weight"),
			Capacity:     rapid.Int64Min(0).Draw(t, "capacity"),
			Labels:       rapid.MapOfN(rapid.StringN(1, -1, MaxLabelBytes), rapid.StringN(0, -1, MaxLabelBytes), 0, 4).Draw(t, "labels"),
			RoostVersion: rapid.StringN(0, -1, MaxRoostVersionBytes).Draw(t, "version of roost"),
			AppVersion:   rapid.StringN(0, -1, MaxAppVersionBytes).Draw(t, "version of the application"),
		},
		Version: rapid.Uint32().Draw(t, "version"), MinWire: rapid.Uint8().Draw(t, "min wire"),
		MaxWire: rapid.Uint8().Draw(t, "max wire"), Handoff: rapid.Bool().Draw(t, "handoff"), Unhealthy: rapid.Bool().Draw(t, "unhealthy"),
		RecentReturns: Stamp(rapid.Int64Range(0, maxStamp).Draw(t, "recent returns")),
		FlappingUntil: Stamp(rapid.Int64Range(0, maxStamp).Draw(t, "flapping until")),
		Keys:          string(rapid.SliceOfN(rapid.Byte(), 0, MaxKeysBytes).Draw(t, "keys")),
		HTTP:          rapid.Uint32Range(0, MaxHTTP).Draw(t, "http"),
		Drains:        Stamp(rapid.Int64Range(0, maxStamp).Draw(t, "drains")),
		Meta:          string(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "meta")), rest: drawRest(t),
	}
}

// drawRest draws fields that only a later release knows.
func drawRest(t *rapid.T) []byte {
	return wire.Append(nil, func(w *wire.Writer) {
		for range rapid.IntRange(0, 3).Draw(t, "unknown fields") {
			switch rapid.IntRange(0, 3).Draw(t, "type") {
			case 0:
				w.Int(rapid.Int64().Draw(t, "number"))
			case 1:
				w.Bytes(rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "bytes"))
			case 2:
				w.Array(2)
				w.Nil()
				w.Map(0)
			case 3:
				w.Text(rapid.StringN(0, 4, 16).Draw(t, "text"))
			}
		}
	})
}

// drawHeartbeat draws a heartbeat for a message with the given stamp. The heartbeat may be a little later than the
// message, or too old for the wire.
func drawHeartbeat(stamp Stamp) func(t *rapid.T) Heartbeat {
	return func(t *rapid.T) Heartbeat {
		at := stamp - Stamp(rapid.Int64Range(-10, int64(2*maxAge)).Draw(t, "age"))
		return Heartbeat{
			Handle: drawHandle(t), Version: rapid.Uint32().Draw(t, "version"),
			At: at, Renewed: at + Stamp(rapid.Int64Range(-10, int64(maxAge)).Draw(t, "renewed later")),
			State: State(rapid.Uint8().Draw(t, "state")),
			Clock: time.Duration(rapid.Int64().Draw(t, "clock")),
			Load:  rapid.Int64().Draw(t, "load"),
			Table: rapid.SampledFrom([]uint32{0, 1, 0xfeedface}).Draw(t, "table"),
			rest:  drawRest(t),
		}
	}
}

func drawHandle(t *rapid.T) Handle {
	return Handle(rapid.Uint64Range(0, 1<<handleBits-1).Draw(t, "handle"))
}

func drawBucketID(t *rapid.T) BucketID {
	bits := rapid.Uint8Range(0, maxBits).Draw(t, "bits")
	return BucketID{Bits: bits, Index: rapid.Uint32Range(0, 1<<bits-1).Draw(t, "index")}
}

func drawBucketDigest(t *rapid.T) BucketDigest {
	return BucketDigest{BucketID: drawBucketID(t), Hashes: rapid.SliceOfN(rapid.Uint32(), 0, 70).Draw(t, "hashes")}
}

func drawBucket(t *rapid.T) Bucket {
	n := rapid.IntRange(0, 2*bucketSize).Draw(t, "nodes")
	bytes := func(n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "ages") }
	return Bucket{
		BucketID: drawBucketID(t), Nodes: n, Digest: uint64(drawHandle(t)),
		ages: bytes((n + 1) / 2), same: bytes((n + 7) / 8),
	}
}

// drawFailureReport draws a failure report for a message with the given stamp.
func drawFailureReport(stamp Stamp) func(t *rapid.T) FailureReport {
	return func(t *rapid.T) FailureReport {
		return FailureReport{
			Subject: drawHandle(t), Watcher: drawHandle(t), Evidence: Evidence(rapid.Uint8Range(1, 127).Draw(t, "evidence")),
			At: stamp - Stamp(rapid.Int64Range(0, int64(maxAge)).Draw(t, "reported before")),
		}
	}
}

func drawWireMessage(t *rapid.T) *Message {
	stamp := Stamp(rapid.Int64Range(int64(4*maxAge), maxStamp).Draw(t, "stamp"))
	return &Message{
		Settings: rapid.Uint32().Draw(t, "settings"), From: drawHandle(t), Stamp: stamp,
		Provisional: rapid.Bool().Draw(t, "provisional"),
		SentAt:      time.UnixMilli(rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "sent at")),
		Heartbeats:  rapid.SliceOfN(rapid.Custom(drawHeartbeat(stamp)), 0, 8).Draw(t, "heartbeats"),
		Records:     rapid.SliceOfN(rapid.Custom(drawRecord), 0, 3).Draw(t, "records"),
		Ages:        rapid.SliceOfN(rapid.Custom(drawBucket), 0, 3).Draw(t, "ages"),
		PullRecords: rapid.SliceOfN(rapid.Custom(drawHandle), 0, 5).Draw(t, "pulled records"),
		PullLeases:  rapid.SliceOfN(rapid.Custom(drawHandle), 0, 5).Draw(t, "pulled leases"),
		PullBuckets: rapid.SliceOfN(rapid.Custom(drawBucketDigest), 0, 5).Draw(t, "buckets"),
		Challenge:   rapid.Uint64().Draw(t, "challenge"), Echo: rapid.Uint64().Draw(t, "echo"),
		Cordons:  rapid.SliceOfN(rapid.Custom(drawCordon(stamp)), 0, 3).Draw(t, "cordons"),
		Cordoned: rapid.Uint32().Draw(t, "digest of cordons"), PullCordons: rapid.Bool().Draw(t, "pulls cordons"),
		FailureReports: rapid.SliceOfN(rapid.Custom(drawFailureReport(stamp)), 0, 3).Draw(t, "failure reports"),
		Missed:         Stamp(rapid.Int64Range(0, maxStamp).Draw(t, "missed")),
		Extra:          rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "extra"),
		Handoff:        rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "handoff"),
	}
}

// onWire returns m as it arrives, with the precision and bounds of the wire.
func onWire(m *Message) *Message {
	c := *m
	c.SentAt = time.UnixMilli(min(max(m.SentAt.UnixMilli(), -maxWall), maxWall))
	c.Heartbeats = nil
	for _, b := range m.Heartbeats {
		latest := min(max(b.At, b.Renewed), m.Stamp) // no heartbeat is later than its message
		sinceContent := max(0, latest-b.At)
		b.Renewed = max(latest, m.Stamp-maxAge)
		b.At = b.Renewed - sinceContent
		b.Clock = min(max(b.Clock.Truncate(ms), -maxClock), maxClock)
		b.Load = min(max(NoLoad, b.Load), maxLoad)
		b.State = min(max(b.State, Settling), Left)
		c.Heartbeats = append(c.Heartbeats, b)
	}
	return &c
}

var equalMessages = cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(Heartbeat{}, Record{}, Bucket{}, Cordon{})}

// Every message can be decoded.
func TestEncodeDecodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawWireMessage(t)
		got, err := Decode(Encode(m))
		if err != nil {
			t.Fatalf("Decode: %v", err)
		}
		if diff := cmp.Diff(onWire(m), got, equalMessages); diff != "" {
			t.Fatalf("(-sent +got):\n%s", diff)
		}
		if !bytes.Equal(Encode(got), Encode(m)) {
			t.Fatal("the same message has two encodings")
		}
	})
}

// No encoded part of a message is larger than the bound that Compose uses for it.
func TestSizesAreUpperBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawWireMessage(t)
		for _, b := range m.Heartbeats {
			if got := rowBytes(&b, m.Stamp, 7); got > maxHeartbeatBytes {
				t.Fatalf("a row of %d bytes", got)
			}
		}
		for _, b := range m.Ages {
			if got := wire.Size(func(w *wire.Writer) { writeBucket(w, &b) }); got > bucketBytes(b.Nodes) {
				t.Fatalf("a bucket of %d nodes takes %d bytes, more than %d", b.Nodes, got, bucketBytes(b.Nodes))
			}
		}
		for _, a := range m.FailureReports {
			if got := wire.Size(func(w *wire.Writer) { writeFailureReport(w, &a, m.Stamp) }); got > maxFailureReportBytes {
				t.Fatalf("a failure report of %d bytes", got)
			}
		}
		for _, c := range m.Cordons {
			if got := wire.Size(func(w *wire.Writer) { writeCordon(w, &c, m.Stamp) }); got > c.size() || c.size() > maxCordonBytes {
				t.Fatalf("a cordon takes %d bytes, more than %d or %d", got, c.size(), maxCordonBytes)
			}
		}
		m.Challenge, m.Echo, m.Extra, m.Handoff = 0, 0, nil, nil
		if got, most := len(Encode(m)), messageOverhead+partsOf(m); got > most {
			t.Fatalf("a message of %d bytes, at most %d by its parts", got, most)
		}
	})
	largest := &Message{
		Settings:       math.MaxUint32,
		Stamp:          maxStamp,
		SentAt:         time.UnixMilli(math.MaxInt64),
		Missed:         maxStamp,
		Cordoned:       math.MaxUint32,
		Heartbeats:     make([]Heartbeat, maxCandidates),
		Ages:           make([]Bucket, maxCandidates),
		Cordons:        make([]Cordon, MaxCordons),
		PullRecords:    make([]Handle, maxCandidates),
		PullLeases:     make([]Handle, maxCandidates),
		PullBuckets:    make([]BucketDigest, maxCandidates),
		FailureReports: make([]FailureReport, maxCandidates),
	}
	for i := range maxCandidates {
		largest.Heartbeats[i].Table = math.MaxUint32
		largest.Records = append(largest.Records, rec("x", 1))
	}
	rest := len(Encode(largest)) - partsOf(largest)
	for i := range largest.Ages { // subtract what the upper bounds of the parts have to spare
		rest += bucketBytes(0) - wire.Size(func(w *wire.Writer) { writeBucket(w, &largest.Ages[i]) })
		rest += 4 + wire.BinSize(0) - wire.Size(func(w *wire.Writer) { writeBucketDigest(w, &largest.PullBuckets[i]) })
		rest += maxFailureReportBytes - wire.Size(func(w *wire.Writer) { writeFailureReport(w, &largest.FailureReports[i], maxStamp) })
	}
	for i := range largest.Cordons {
		rest += largest.Cordons[i].size() - wire.Size(func(w *wire.Writer) { writeCordon(w, &largest.Cordons[i], maxStamp) })
	}
	if rest > messageOverhead || rest < messageOverhead-16 {
		t.Errorf("the largest message takes %d bytes besides its parts, messageOverhead is %d", rest, messageOverhead)
	}
}

// partsOf adds up the upper bounds for the encoded sizes of the parts that messageOverhead does not cover.
func partsOf(m *Message) int {
	most := handleBytes*(len(m.PullRecords)+len(m.PullLeases)) + maxFailureReportBytes*len(m.FailureReports)
	for i := range m.Heartbeats {
		most += rowBytes(&m.Heartbeats[i], m.Stamp, tableOf(m))
	}
	for _, r := range m.Records {
		most += recordBytes(r)
	}
	for i := range m.Ages {
		most += bucketBytes(m.Ages[i].Nodes)
	}
	for i := range m.PullBuckets {
		most += 4 + wire.BinSize(4*len(m.PullBuckets[i].Hashes))
	}
	for i := range m.Cordons {
		most += m.Cordons[i].size()
	}
	return most
}

// Typical rows take at most 24 bytes each, because the size of a row limits how fast news spreads.
func TestRowSize(t *testing.T) {
	const stamp = 1 << 41 // a day in 2039
	row := func(b Heartbeat) int { return rowBytes(&b, stamp, 7) }
	most := Heartbeat{
		At: 1, Renewed: stamp - maxAge, State: Left, Version: math.MaxUint32, Clock: math.MinInt64, Load: math.MaxInt64,
		Table: math.MaxUint32, rest: make([]byte, maxRestBytes), // zeroes, one byte each
	}
	for _, tc := range []struct {
		name      string
		heartbeat Heartbeat
		want      int
	}{
		{"least", Heartbeat{At: stamp, Load: NoLoad, Table: 7}, 11},
		{"sent a second ago", Heartbeat{At: stamp - 1234, State: Active, Version: 4, Clock: 3 * ms, Load: 2450, Table: 7}, 16},
		{
			"renewed by an age",
			Heartbeat{At: stamp - 90_000, Renewed: stamp - 1234, State: Active, Version: 4, Clock: 3 * ms, Load: 2450, Table: 7},
			21,
		},
		{"a day after the last news", Heartbeat{
			At: stamp - 86_400_000, Renewed: stamp - 5000, State: Active, Version: 300, Clock: -120 * ms, Load: 20_000, Table: 7,
		}, 24},
		{"the same while tables differ", Heartbeat{At: stamp - 1234, State: Active, Version: 4, Clock: 3 * ms, Load: 2450, Table: 8}, 18},
		{"most", most, maxHeartbeatBytes},
	} {
		got := row(tc.heartbeat)
		if got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
		if tc.name != "most" && got > 24 {
			t.Errorf("%s: a typical row of %d bytes", tc.name, got)
		}
	}
}

// An independent decoder finds each field at the position that docs/dev/design/wire.md specifies.
func TestAnotherDecoderReadsMessages(t *testing.T) {
	const stamp = Stamp(corpusStamp)
	read := func(m *Message) (fields []any) {
		t.Helper()
		handle := &codec.MsgpackHandle{}
		handle.RawToString = true
		if err := codec.NewDecoderBytes(Encode(m), handle).Decode(&fields); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	check := func(what string, got []any, want ...any) {
		t.Helper()
		for i, w := range want {
			if got, w := fmt.Sprintf("%v", got[i]), fmt.Sprintf("%v", w); got != w {
				t.Errorf("field %d of %s is %.100q, want %.100q", i, what, got, w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s has %d fields, want %d", what, len(got), len(want))
		}
	}
	field := func(name string, at int) []any { return read(corpus()[name])[at].([]any) }
	const from, a, b, d = "\x01\x02\x03\x04\x05\xff", "\xa1\xa2\xa3\xa4\xa5\xa6", "\xb1\xb2\xb3\xb4\xb5\xb6", "\xd1\xd2\xd3\xd4\xd5\xd6"
	head := []any{1, 0xc0ffee, from, stamp, 0, 3}
	const none = "<nil>"
	message := func(name string, fields ...any) {
		t.Helper()
		got := read(corpus()[name])
		for i, f := range fields {
			if f == "any" {
				got[len(head)+i] = f
			}
		}
		check(name, got, append(slices.Clone(head), fields...)...)
	}

	message("gossip", 7, from+a+b+d, "any", "any", none, none, none, "any", none, none, none, none, a)
	check("an own row", field("gossip", fieldRows)[0].([]any), 2, 3, 12, 1200)
	check("a row renewed by an age", field("gossip", fieldRows)[1].([]any), 3, 1, 2000, 90, -15, 68000)
	check("a row with a table", field("gossip", fieldRows)[2].([]any), 1, 1, 0, -1, 4000, none, uint32(0xfeedface))
	check("a bucket", field("gossip", fieldAges)[0].([]any), 2, 3, "\x11\x22\x33\x44\x55\x66\x10\x0f\x05")
	message("founders", none, none, none, none, "\x00\x00\x00\x00\x00\x01"+a)
	message("extra", none, none, none, none, none, "\x00\x01\x02\xff")
	message("missed", none, none, none, none, none, none, stamp-5)
	message("failure-reports", none, none, none, none, none, none, none, none, "any")
	check("a failure report", field("failure-reports", fieldFailureReports)[1].([]any), a+b, 1500, 2)
	message("cordons", none, none, none, none, none, none, none, none, none, uint32(0xfeedface), "any")
	check("a cordon", field("cordons", fieldCordons)[0].([]any), "node-a", 12_000, 600_000, 0, "disk errors since 14:02")
	message("pull-records", none, none, none, none, none, none, none, none, none, none, none,
		"\xc1\xc2\xc3\xc4\xc5\xc6\x00\x00\x00\x00\x00\x01")
	message("pull-buckets", none, none, none, none, none, none, none, none, none, none, none, none, none, "any")
	check("a pulled bucket", field("pull-buckets", fieldPullBuckets)[1].([]any), 15, "\x00\x00\x00\x01\xf1\xf2\xf3\xf4")
	message("echo", none, none, none, none, none, none, none, none, none, none, none, none, none, none, none, uint64(0x0123456789abcdef))
	message("handoff", none, none, none, none, none, none, none, none, none, none, none, none, none, none, none, none, "\x00\x01\x02\xff")
	head[4] = 2
	message("cordons.request")
	check("a record", field("gossip", fieldRecords)[0].([]any), "node-a", uint64(1_700_000_000_000_000_000), 3,
		"10.0.0.1:7946", "10.0.0.1:8401", "eu-1", 100, 2450,
		1, 1, none, none, none, none, map[any]any{"role": "sfu", "gen": "2"})
	check("a full record", field("records", fieldRecords)[0].([]any), "full", 1, 1, "10.0.0.3:7946", "", "",
		MaxWeight, 0, 1, 1, "v12.345.678-rc.1",
		MaxHTTP, "\x00\x01\xfe\xff123456789012", true, none, "sfu 2026.11.24-rc1", "\xffmeta", stamp+160_000, stamp+52_000, stamp+3_000, true)
}
