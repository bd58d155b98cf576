package lease

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) *Record {
	id := rapid.StringMatching(`[A-Za-z0-9._:-]{1,64}`).Draw(t, "id")
	return &Record{
		ID: NodeID(id), Incarnation: rapid.Uint64().Draw(t, "incarnation"),
		Version:  rapid.Uint32().Draw(t, "version"),
		Addr:     rapid.StringN(0, -1, 100).Draw(t, "addr"),
		APIAddr:  rapid.StringN(0, -1, 100).Draw(t, "api addr"),
		Zone:     rapid.StringN(0, -1, MaxZoneBytes).Draw(t, "zone"),
		Weight:   rapid.Uint32Range(0, MaxWeight).Draw(t, "weight"),
		Capacity: rapid.Int64Min(0).Draw(t, "capacity"),
		Labels: rapid.MapOfN(rapid.StringN(1, -1, MaxLabelBytes),
			rapid.StringN(0, -1, MaxLabelBytes), 0, 4).Draw(t, "labels"),
	}
}

func drawBeat(t *rapid.T) Beat {
	return Beat{
		Handle: drawHandle(t), Seq: rapid.Uint32().Draw(t, "seq"), Version: rapid.Uint32().Draw(t, "version"),
		State: State(rapid.Uint8().Draw(t, "state")),
		Age:   time.Duration(rapid.Int64Range(0, int64(2*maxAge)).Draw(t, "age")),
		Clock: time.Duration(rapid.Int64().Draw(t, "clock")),
		Load:  rapid.Int64().Draw(t, "load"),
		Table: rapid.SampledFrom([]uint32{0, 1, 0xfeedface}).Draw(t, "table"),
	}
}

func drawHandle(t *rapid.T) Handle {
	return Handle(rapid.Uint64Range(0, 1<<handleBits-1).Draw(t, "handle"))
}

func drawWireMessage(t *rapid.T) *Message {
	return &Message{
		Settings: rapid.Uint32().Draw(t, "settings"), From: drawHandle(t),
		SentAt:  time.UnixMilli(rapid.Int64().Draw(t, "sent at")),
		Beats:   rapid.SliceOfN(rapid.Custom(drawBeat), 0, 8).Draw(t, "beats"),
		Records: rapid.SliceOfN(rapid.Custom(drawRecord), 0, 3).Draw(t, "records"),
		Wants:   rapid.SliceOfN(rapid.Custom(drawHandle), 0, 5).Draw(t, "wants"),
		Extra:   rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "extra"),
	}
}

// onWire returns m with the precision and bounds of the wire.
func onWire(m *Message) *Message {
	c := *m
	c.SentAt = time.UnixMilli(m.SentAt.UnixMilli())
	c.Beats = nil
	for _, b := range m.Beats {
		if up := b.Age.Truncate(time.Microsecond); up < b.Age {
			b.Age = up + time.Microsecond
		}
		b.Age = min(b.Age, maxAge)
		b.Clock = min(max(b.Clock.Truncate(ms), -maxClock), maxClock)
		b.Load = min(max(NoLoad, b.Load), maxLoad)
		b.State = min(max(b.State, Settling), Left)
		c.Beats = append(c.Beats, b)
	}
	return &c
}

var equalMessages = cmp.Options{cmpopts.EquateEmpty()}

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

// goldenMessage has one of each part: rows in every state, three of them with the same
// table digest.
func goldenMessage() *Message {
	r := &Record{
		ID: "node-a", Incarnation: 1_700_000_000_000_000_000, Version: 3,
		Addr: "10.0.0.1:7946", APIAddr: "10.0.0.1:8401", Zone: "eu-1", Weight: 100, Capacity: 2450,
		Labels: map[string]string{"role": "sfu", "gen": "2"},
	}
	return &Message{
		Settings: 0xc0ffee, From: 0x0102030405ff, SentAt: epoch,
		Beats: []Beat{
			{Handle: 0x0102030405ff, Seq: 1000, State: Active, Version: 3, Age: 12_345 * time.Microsecond, Load: 1200, Table: 7},
			{Handle: 0xa1a2a3a4a5a6, Seq: 70_000, State: Draining, Version: 1, Age: 2 * time.Second, Clock: -15 * ms, Load: 90, Table: 7},
			{Handle: 0xb1b2b3b4b5b6, Seq: 1, State: Settling, Version: 1, Age: 1, Clock: 4 * time.Second, Load: NoLoad, Table: 0xfeedface},
			{Handle: 0xd1d2d3d4d5d6, Seq: math.MaxUint32, State: Left, Version: 2, Age: ms, Table: 7},
		},
		Records: []*Record{r},
		Wants:   []Handle{0xc1c2c3c4c5c6, 1},
	}
}

// The wire form is a contract between programs of different builds. A change of these
// bytes needs a new WireVersion.
func TestWireIsPinned(t *testing.T) {
	const want = "02" + // version
		"97" + "ce00c0ffee" + "cf00000102030405ff" + "cf0000019ca9450a00" + "07" + // settings, from, sent at, table
		"c43d" + // beats: seq, state and whether a table follows; version, age, clock, load
		"0102030405ff" + "c23e" + "03" + "b960" + "00" + "b109" +
		"a1a2a3a4a5a6" + "849722" + "01" + "80897a" + "1d" + "5b" +
		"b1b2b3b4b5b6" + "09" + "01" + "01" + "c03e" + "00" + "feedface" +
		"d1d2d3d4d5d6" + "feffffff7f" + "02" + "e807" + "00" + "01" +
		"91" + "99" + "a66e6f64652d61" + "cf17979cfe362a0000" + "03" + // record
		"ad31302e302e302e313a37393436" + "ad31302e302e302e313a38343031" + "a465752d31" + "64" + "cd0992" +
		"82" + "a367656e" + "a132" + "a4726f6c65" + "a3736675" +
		"c40c" + "c1c2c3c4c5c6" + "000000000001" // wants
	if got := hex.EncodeToString(Encode(goldenMessage())); got != want {
		t.Errorf("encoded\n%s, want\n%s", got, want)
	}
	raw, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(onWire(goldenMessage()), got, equalMessages); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// The size of a row limits the size of a cluster: at most 24 bytes each.
func TestRowSize(t *testing.T) {
	row := func(b Beat) int { return len(appendBeat(nil, &b, 7)) }
	day := uint32(24 * time.Hour / (2 * time.Second)) // beats
	for _, tc := range []struct {
		name string
		beat Beat
		want int
	}{
		{"least", Beat{Table: 7}, 11},
		{
			"after a day, held for a second", Beat{
				Seq: day, State: Active, Version: 4, Age: 1_234_567 * time.Microsecond, Clock: 3 * ms, Load: 2450, Table: 7,
			}, 16,
		},
		{
			"after a year, held for five seconds", Beat{
				Seq: 365 * day, State: Active, Version: 300, Age: 5 * time.Second, Clock: -120 * ms, Load: 20_000, Table: 7,
			}, 21,
		},
		{"the same while tables differ", Beat{
			Seq: day, State: Active, Version: 4, Age: 1_234_567 * time.Microsecond, Clock: 3 * ms, Load: 2450, Table: 8,
		}, 20},
		{"most", Beat{
			Seq: math.MaxUint32, State: Left, Version: math.MaxUint32, Age: math.MaxInt64, Clock: math.MinInt64,
			Load: math.MaxInt64, Table: 8,
		}, 42},
	} {
		if got := row(tc.beat); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
		if tc.name != "most" && tc.want > 24 {
			t.Errorf("%s: a typical row of %d bytes", tc.name, tc.want)
		}
	}
	if most := row(Beat{Seq: math.MaxUint32, State: Left, Version: math.MaxUint32, Age: math.MaxInt64, Clock: math.MinInt64, Load: math.MaxInt64, Table: 8}); most > maxBeatBytes {
		t.Errorf("a row of %d bytes, more than maxBeatBytes", most)
	}
	if least := row(Beat{Table: 7}); least != minBeatBytes {
		t.Errorf("a row of %d bytes, minBeatBytes is %d", least, minBeatBytes)
	}
}
