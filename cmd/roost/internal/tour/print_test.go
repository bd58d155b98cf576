package tour

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

func TestPlainOutput(t *testing.T) {
	var b strings.Builder
	p := newPrinter(&b)
	p.title(3, "c joins", "It takes\nits share.")
	for _, d := range []time.Duration{1, 2, 3, 4} {
		p.wait("1 of 3 agents agree", d*1500*time.Millisecond)
	}
	p.waited()
	tour := &tour{out: p, nodes: []*node{{id: "a", note: "pid 1"}, {id: "node-2", note: "killed", state: lease.Left}, {id: "c", state: lease.Left}}}
	rooms := map[string]lease.NodeID{"1": "a", "2": "a", "3": "node-2"}
	before := view{owners: ownersOf(evenly("aab", 1200)), placed: rooms, pins: map[string]pin{"1": {"a", 1, 3}, "2": {"node-2", 1, 3}}}
	after := view{
		owners: ownersOf(evenly("a", 1200)), placed: map[string]lease.NodeID{"1": "a", "2": "a", "3": "a"},
		pins: map[string]pin{"1": {"a", 1, 50}, "2": {"a", 2, 3}},
	}
	tour.seen = []view{after}
	tour.holdings(after)
	tour.rooms, tour.nodes[0].note, tour.nodes[1].note = []string{"1", "2", "3"}, "joined", "killed"
	tour.holdings(before)
	tour.parties = partiesIn(rooms)
	tour.holdings(before)
	p.fact("partitions moved", "12", "expected: 11")
	p.wait("a short wait", time.Second)
	p.waited()
	p.check(check{what: "it is so"})
	p.check(check{what: "it is otherwise", problem: "that says why"})
	p.summary([]row{
		{what: "c joined", moved: 12, of: 1024, expected: "1.1 %", rooms: 1009, pinned: 41, agreed: 1234 * time.Millisecond, checks: 3, held: 3},
		{what: "node-10 was killed", moved: 0, of: 0, expected: "none", checks: 3, held: 1},
	})
	want := `
3. c joins
   It takes
   its share.

    2.0 s  1 of 3 agents agree
    4.0 s  1 of 3 agents agree
    6.0 s  1 of 3 agents agree

           partitions
   a            1,200  ████████████████████  pid 1
   node-2           0                        killed

           partitions         rooms
   a            1,200  +400       3    +1  ████████████████████  joined
   node-2           0             0    -1                        killed

      partitions        pinned        streams
   a       1,200  +400       2    +1    2,456  ████████████████████

   partitions moved  12                      expected: 11
   held    it is so
   BROKEN  it is otherwise
           that says why

What happened       partitions moved   expected   rooms  pinned   agreed  checks
c joined                 12    1.2 %      1.1 %   1,009      41    1.2 s  held
node-10 was killed        0    0.0 %       none       0       0    0.0 s  2 of 3 BROKEN
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestOutputThatFails: the tour fails if its output cannot be written.
func TestOutputThatFails(t *testing.T) {
	for n := range 3 {
		p := newPrinter(&full{room: n})
		tour := &tour{out: p}
		p.wait("a long wait", 3*time.Second)
		if err := tour.verdict(); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after %d lines: %v", n, err)
		}
	}
}

// full is an output with room for a number of writes.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room--; f.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestTerminalOutput(t *testing.T) {
	var b strings.Builder
	p := &printer{w: &b, term: term.Terminal{Moves: true, Colours: true}}
	p.wait("first", time.Second)
	p.wait("then", 2*time.Second)
	p.check(check{what: "it is so"})
	p.waited()
	want := "\r\x1b[2m    1.0 s  first\x1b[0m\x1b[K" + // a line that is overwritten
		"\r\x1b[2m    2.0 s  then\x1b[0m\x1b[K" +
		"\r\x1b[K" + // the line disappears
		"   \x1b[32mheld\x1b[0m    it is so\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
