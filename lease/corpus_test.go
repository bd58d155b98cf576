package lease

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the messages that are missing in testdata/wire")

// corpora are the messages of each release, by folder and file. A release that adds
// sections or fields adds a folder. The messages of released folders are never rewritten:
// programs of that release send them. This program still writes them byte for byte: what
// it adds is left out where it says nothing.
func corpora() map[string]map[string]*Message {
	const stamp = corpusStamp
	join := func(changes ...func(*Record)) map[string]*Message {
		return map[string]*Message{"join": corpusMessage(func(m *Message) {
			for i, change := range changes {
				r := &Record{ID: NodeID("ab"[i : i+1]), Incarnation: 1, Version: 1, Addr: fmt.Sprintf("10.0.0.%d:7946", i+1), Weight: 100, MinWire: 3, MaxWire: 3}
				change(r)
				m.Records = append(m.Records, r)
			}
		})}
	}
	handover := join(func(r *Record) { r.Handover = true })
	handover["ask"] = corpusMessage(func(m *Message) { m.Handover = []byte{0, 1, 2, 0xff} })
	return map[string]map[string]*Message{
		"v3": corpus3(),
		"v3.evictions": {
			"digest": corpusMessage(func(m *Message) { m.Evicted = 0xfeedface }),
			"news": corpusMessage(func(m *Message) {
				m.Evicted = 0xfeedface
				m.Evictions = []Eviction{
					{ID: "node-a", At: stamp - 12_000, Until: stamp + 588_000, Keep: stamp + 588_000, Reason: "disk errors since 14:02"},
					{ID: "b", At: stamp, Until: stamp, Keep: stamp + maxAge},
				}
			}),
			"request": corpusMessage(func(m *Message) { m.WantsEvictions = true }),
		},
		"v3.proof": {"accusations": corpusMessage(func(m *Message) {
			m.Accusations = []Accusation{
				{Subject: 0xa1a2a3a4a5a6, Watcher: 0x0102030405ff, At: stamp, Evidence: Refused},
				{Subject: 0xa1a2a3a4a5a6, Watcher: 0xb1b2b3b4b5b6, At: stamp - 1500, Evidence: Silent},
				{Subject: 0xd1d2d3d4d5d6, Watcher: 0xb1b2b3b4b5b6, At: stamp - maxAge, Evidence: math.MaxInt8},
			}
		})},
		"v3.handover": handover,
		"v3.damping":  join(func(r *Record) { r.Restless, r.Held = stamp+160_000, stamp+52_000 }),
		"v3.keys":     join(func(r *Record) { r.Keys = "\x00\x01\xfe\xff1234" }),
		"v3.versions": join(func(r *Record) { r.Roost, r.Program = "v12.345.678", "sfu 2026.11.24-rc1" }),
		"v3.http": join(func(r *Record) { // all fields that may be absent, as long as they can be
			r.Handover, r.Restless, r.Held, r.Keys = true, stamp+160_000, stamp+52_000, "\x00\x01\xfe\xff123456789012"
			r.Roost, r.Program, r.HTTP = "v12.345.678", "sfu 2026.11.24-rc1", MaxHTTP
		}, func(r *Record) { r.HTTP = 2 * 8401 }),
		"v3.planned": join(func(r *Record) { r.Drains = stamp + 3_000 }),
	}
}

const corpusStamp = 1_772_366_400_000

func corpusMessage(change func(m *Message)) *Message {
	m := &Message{Settings: 0xc0ffee, From: 0x0102030405ff, Stamp: corpusStamp, SentAt: time.UnixMilli(corpusStamp + 3)}
	change(m)
	return m
}

// corpus3 returns one message of every kind.
func corpus3() map[string]*Message {
	const stamp = corpusStamp
	a := &Record{
		ID: "node-a", Incarnation: 1_700_000_000_000_000_000, Version: 3,
		Addr: "10.0.0.1:7946", APIAddr: "10.0.0.1:8401", Zone: "eu-1", Weight: 100, Capacity: 2450,
		Labels: map[string]string{"role": "sfu", "gen": "2"}, MinWire: 3, MaxWire: 3,
	}
	b := &Record{ID: "b", Incarnation: maxIncarnation, Version: math.MaxUint32, MinWire: 3, MaxWire: 4}
	own := Beat{
		Handle: 0x0102030405ff, At: stamp - 12, Renewed: stamp - 12, State: Active, Version: 3, Load: 1200, Table: 7,
	}
	rows := []Beat{
		own,
		{Handle: 0xa1a2a3a4a5a6, At: stamp - 70_000, Renewed: stamp - 2000, State: Draining, Version: 1, Clock: -15 * ms, Load: 90, Table: 7},
		{Handle: 0xb1b2b3b4b5b6, At: stamp, Renewed: stamp, State: Settling, Version: 1, Clock: 4 * time.Second, Load: NoLoad, Table: 0xfeedface},
		{Handle: 0xd1d2d3d4d5d6, At: stamp - maxAge, Renewed: stamp - maxAge, State: Left, Version: math.MaxUint32, Clock: -maxClock, Load: maxLoad, Table: 7},
	}
	ages := []Bucket{
		{BucketID: BucketID{Bits: 1, Index: 0}, Nodes: 3, Digest: 0x112233445566, ages: []byte{0x10, 0x0f}, same: []byte{0x05}},
		{BucketID: BucketID{Bits: 1, Index: 1}, Nodes: 0, Digest: 0},
	}
	return map[string]*Message{
		"join": corpusMessage(func(m *Message) { m.Provisional, m.Beats, m.Records = true, rows[:1], []*Record{a} }),
		"sync": corpusMessage(func(m *Message) { m.Beats, m.Records, m.Extra = rows, []*Record{a, b}, []byte("extra") }),
		"gossip": corpusMessage(func(m *Message) {
			m.Beats, m.Records, m.Ages, m.Asks = rows, []*Record{a}, ages, []Handle{0xa1a2a3a4a5a6}
		}),
		"farewell": corpusMessage(func(m *Message) {
			left := own
			left.State = Left
			m.Beats = []Beat{left}
		}),
		"wants": corpusMessage(func(m *Message) { m.Wants = []Handle{0xc1c2c3c4c5c6, 1} }),
		"asks":  corpusMessage(func(m *Message) { m.Beats, m.Asks = rows[:1], []Handle{0xc1c2c3c4c5c6, 1} }),
		"buckets": corpusMessage(func(m *Message) {
			m.Buckets = []Holding{{}, {BucketID: BucketID{Bits: 3, Index: 7}, Marks: []uint32{1, 0xf1f2f3f4}}, {BucketID: BucketID{Bits: 12, Index: 4095}}}
		}),
		"challenge": corpusMessage(func(m *Message) { m.Challenge, m.Records = 0x0123456789abcdef, []*Record{a} }),
		"echo":      corpusMessage(func(m *Message) { m.Echo = 0x0123456789abcdef }),
		"extra":     corpusMessage(func(m *Message) { m.Extra = []byte{0, 1, 2, 0xff} }),
	}
}

func corpusFile(folder, name string) string {
	return filepath.Join("testdata", "wire", folder, name+".hex")
}

// This program reads the messages of every release, field by field, and writes them byte
// for byte.
func TestCorpusOfReleases(t *testing.T) {
	for folder, messages := range corpora() {
		files, err := filepath.Glob(corpusFile(folder, "*"))
		if err != nil || (len(files) != len(messages) && !*update) {
			t.Errorf("%s has %d files for %d messages (%v); -update writes the missing ones", folder, len(files), len(messages), err)
		}
		for name, want := range messages {
			t.Run(folder+"/"+name, func(t *testing.T) {
				wire := readCorpus(t, corpusFile(folder, name), want)
				got, err := Decode(wire)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, equalMessages); diff != "" {
					t.Errorf("decoded (-want +got):\n%s", diff)
				}
				if own := Encode(want); !bytes.Equal(own, wire) {
					t.Errorf("encoded\n%x, want\n%x", own, wire)
				}
			})
		}
	}
}

// readCorpus reads a file of testdata, in lines of hexadecimal digits. With -update, it
// writes the file first if the file is missing.
func readCorpus(tb testing.TB, file string, m *Message) []byte {
	tb.Helper()
	text, err := os.ReadFile(file)
	if *update && errors.Is(err, fs.ErrNotExist) {
		for b := Encode(m); len(b) > 0; b = b[min(len(b), 32):] {
			text = fmt.Appendf(text, "%x\n", b[:min(len(b), 32)])
		}
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	wire, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return wire
}
