package lease

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the messages of this program, testdata/wire/next")

// next is the folder of the messages that this program writes. Each release keeps a copy of it, in a folder with the
// name of the release: see docs/dev/releases.md. The copies must never be rewritten, because nodes of that release send
// such messages.
const next = "next"

const corpusStamp = 1_772_366_400_000

func corpusMessage(change func(m *Message)) *Message {
	m := &Message{Settings: 0xc0ffee, From: 0x0102030405ff, Stamp: corpusStamp, SentAt: time.UnixMilli(corpusStamp + 3)}
	change(m)
	return m
}

// corpus returns one message of every kind.
func corpus() map[string]*Message {
	const stamp = corpusStamp
	a := &Record{
		Profile: Profile{
			ID: "node-a", Incarnation: 1_700_000_000_000_000_000, Addr: "10.0.0.1:7946", APIAddr: "10.0.0.1:8401",
			Zone: "eu-1", Weight: 100, Capacity: 2450, Labels: map[string]string{"role": "sfu", "gen": "2"},
		},
		Version: 3, MinWire: 1, MaxWire: 1,
	}
	b := &Record{Profile: Profile{ID: "b", Incarnation: maxIncarnation}, Version: math.MaxUint32, MinWire: 1, MaxWire: 2}
	full := &Record{
		Profile: Profile{
			ID: "full", Incarnation: 1, Addr: "10.0.0.3:7946", Weight: MaxWeight, RoostVersion: "v12.345.678-rc.1",
			AppVersion: "sfu 2026.11.24-rc1",
		},
		Version: 1, Handoff: true, RecentReturns: stamp + 160_000, FlappingUntil: stamp + 52_000,
		Keys: "\x00\x01\xfe\xff123456789012", HTTP: MaxHTTP, Drains: stamp + 3_000, Unhealthy: true, Meta: "\xffmeta", MinWire: 1,
		MaxWire: 1,
	}
	own := Heartbeat{
		Handle: 0x0102030405ff, At: stamp - 12, Renewed: stamp - 12, State: Active, Version: 3, Load: 1200, Table: 7,
	}
	rows := []Heartbeat{
		own,
		{Handle: 0xa1a2a3a4a5a6, At: stamp - 70_000, Renewed: stamp - 2000, State: Draining, Version: 1, Clock: -15 * ms, Load: 90, Table: 7},
		{Handle: 0xb1b2b3b4b5b6, At: stamp, Renewed: stamp, State: Settling, Version: 1, Clock: 4 * time.Second, Load: NoLoad, Table: 0xfeedface},
		{
			Handle:  0xd1d2d3d4d5d6,
			At:      stamp - maxAge,
			Renewed: stamp - maxAge,
			State:   Left,
			Version: math.MaxUint32,
			Clock:   -maxClock,
			Load:    maxLoad,
			Table:   7,
		},
	}
	ages := []Bucket{
		{BucketID: BucketID{Bits: 1, Index: 0}, Nodes: 3, Digest: 0x112233445566, ages: []byte{0x10, 0x0f}, same: []byte{0x05}},
		{BucketID: BucketID{Bits: 1, Index: 1}, Nodes: 0, Digest: 0},
	}
	return map[string]*Message{
		"join": corpusMessage(func(m *Message) { m.Provisional, m.Heartbeats, m.Records = true, rows[:1], []*Record{a} }),
		"sync": corpusMessage(func(m *Message) { m.Heartbeats, m.Records, m.Extra = rows, []*Record{a, b}, []byte("extra") }),
		"gossip": corpusMessage(func(m *Message) {
			m.Heartbeats, m.Records, m.Ages, m.PullLeases = rows, []*Record{a}, ages, []Handle{0xa1a2a3a4a5a6}
		}),
		"leave": corpusMessage(func(m *Message) {
			left := own
			left.State = Left
			m.Heartbeats = []Heartbeat{left}
		}),
		"pull-records": corpusMessage(func(m *Message) { m.PullRecords = []Handle{0xc1c2c3c4c5c6, 1} }),
		"pull-leases":  corpusMessage(func(m *Message) { m.Heartbeats, m.PullLeases = rows[:1], []Handle{0xc1c2c3c4c5c6, 1} }),
		"pull-buckets": corpusMessage(func(m *Message) {
			m.PullBuckets = []BucketDigest{
				{},
				{BucketID: BucketID{Bits: 3, Index: 7}, Hashes: []uint32{1, 0xf1f2f3f4}},
				{BucketID: BucketID{Bits: 12, Index: 4095}},
			}
		}),
		"challenge": corpusMessage(func(m *Message) { m.Challenge, m.Records = 0x0123456789abcdef, []*Record{a} }),
		"echo":      corpusMessage(func(m *Message) { m.Echo = 0x0123456789abcdef }),
		"extra":     corpusMessage(func(m *Message) { m.Extra = []byte{0, 1, 2, 0xff} }),
		"records":   corpusMessage(func(m *Message) { m.Records = []*Record{full} }),
		"handoff":   corpusMessage(func(m *Message) { m.Handoff = []byte{0, 1, 2, 0xff} }),
		"missed":    corpusMessage(func(m *Message) { m.Missed = stamp - 5 }),
		"founders":  corpusMessage(func(m *Message) { m.Cluster = ClusterID{1, 0xa1a2a3a4a5a6} }),
		"failure-reports": corpusMessage(func(m *Message) {
			m.FailureReports = []FailureReport{
				{Subject: 0xa1a2a3a4a5a6, Watcher: 0x0102030405ff, At: stamp, Evidence: Refused},
				{Subject: 0xa1a2a3a4a5a6, Watcher: 0xb1b2b3b4b5b6, At: stamp - 1500, Evidence: Silent},
				{Subject: 0xd1d2d3d4d5d6, Watcher: 0xb1b2b3b4b5b6, At: stamp - maxAge, Evidence: math.MaxInt8},
			}
		}),
		"cordons": corpusMessage(func(m *Message) {
			m.Cordoned = 0xfeedface
			m.Cordons = []Cordon{
				{ID: "node-a", At: stamp - 12_000, Until: stamp + 588_000, Keep: stamp + 588_000, Reason: "disk errors since 14:02"},
				{ID: "b", At: stamp, Until: stamp, Keep: stamp + maxAge},
			}
		}),
		"cordons.digest":  corpusMessage(func(m *Message) { m.Cordoned = 0xfeedface }),
		"cordons.request": corpusMessage(func(m *Message) { m.PullCordons = true }),
	}
}

func corpusFile(folder, name string) string {
	return filepath.Join("testdata", "wire", folder, name+".hex")
}

// This program writes its messages exactly as in testdata, byte for byte, and reads them back without a difference.
func TestCorpus(t *testing.T) {
	messages := corpus()
	if *update {
		rewriteCorpus(t, messages)
	}
	if files, err := filepath.Glob(corpusFile(next, "*")); err != nil || len(files) != len(messages) {
		t.Errorf("%d files for %d messages (%v): run with -update", len(files), len(messages), err)
	}
	for name, want := range messages {
		wire := readCorpus(t, corpusFile(next, name))
		if diff := cmp.Diff(want, decode(t, wire), equalMessages); diff != "" {
			t.Errorf("%s decoded (-want +got):\n%s", name, diff)
		}
		if own := Encode(want); !bytes.Equal(own, wire) {
			t.Errorf("%s encoded\n%x, want\n%x", name, own, wire)
		}
	}
}

// This program reads the messages of every release, and relays their content.
func TestCorpusOfReleases(t *testing.T) {
	for _, file := range corpusFiles(t) {
		m, err := Decode(readCorpus(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if diff := cmp.Diff(m, decode(t, Encode(m)), equalMessages); diff != "" {
			t.Errorf("%s (-decoded +encoded and decoded):\n%s", file, diff)
		}
	}
}

// corpusFiles returns the files of this program and of all releases.
func corpusFiles(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(corpusFile("*", "*"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no messages in testdata/wire (%v)", err)
	}
	return files
}

// rewriteCorpus writes messages in lines of hexadecimal digits.
func rewriteCorpus(t *testing.T, messages map[string]*Message) {
	t.Helper()
	dir := filepath.Dir(corpusFile(next, ""))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, m := range messages {
		var text []byte
		for b := Encode(m); len(b) > 0; b = b[min(len(b), 32):] {
			text = fmt.Appendf(text, "%x\n", b[:min(len(b), 32)])
		}
		if err := os.WriteFile(corpusFile(next, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readCorpus(tb testing.TB, file string) []byte {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	wire, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return wire
}
