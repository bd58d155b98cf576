package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is the simple form of a Set: it stores all messages, and computes the live
// nodes from them on every call.
type twin struct {
	records map[Handle][]*Record
	beats   map[Handle][]fact
	floor   map[Handle]uint32 // beats up to this one do not count: the node was paused
}

type fact struct {
	seq     uint32
	state   State
	renewed time.Time
}

func newTwin() *twin {
	return &twin{
		records: make(map[Handle][]*Record), beats: make(map[Handle][]fact),
		floor: make(map[Handle]uint32),
	}
}

func (w *twin) hear(now time.Time, self NodeID, m *Message) {
	for _, r := range m.Records {
		if r.ID != self {
			w.records[r.handle()] = append(w.records[r.handle()], r)
		}
	}
	for _, b := range m.Beats {
		worth := testParams.TTL
		if b.State == Left {
			worth = testParams.forgetAfter()
		}
		if w.records[b.Handle] != nil && b.Age <= worth {
			w.beats[b.Handle] = append(w.beats[b.Handle], fact{b.Seq, b.State, now.Add(-b.Age)})
		}
	}
}

func (w *twin) suspend() {
	for h := range w.beats {
		w.floor[h] = w.latest(h).seq
	}
}

// latest returns the greatest beat of h, with the age of its oldest copy.
func (w *twin) latest(h Handle) fact {
	return slices.MaxFunc(w.beats[h], func(a, b fact) int {
		if a.seq != b.seq {
			return int(a.seq) - int(b.seq)
		}
		return b.renewed.Compare(a.renewed)
	})
}

func (w *twin) record(h Handle) *Record {
	return slices.MaxFunc(w.records[h], func(a, b *Record) int { return int(a.Version) - int(b.Version) })
}

// live returns the live nodes: for each id, the last incarnation that sent a beat, if
// its latest beat is young enough and not a farewell.
func (w *twin) live(now time.Time) (lines []string) {
	last := make(map[NodeID]*Record)
	for h := range w.records {
		r := w.record(h)
		if cur := last[r.ID]; w.beats[h] != nil && (cur == nil || r.Incarnation > cur.Incarnation) {
			last[r.ID] = r
		}
	}
	for _, r := range last {
		b := w.latest(r.handle())
		if b.state != Left && now.Sub(b.renewed) <= testParams.TTL && b.seq > w.floor[r.handle()] {
			lines = append(lines, fmt.Sprintf("%s/%d v%d %v seq %d", r.ID, r.Incarnation, r.Version, b.state, b.seq))
		}
	}
	slices.Sort(lines)
	return lines
}

// Real Sets on a faulty network: at every tick each view equals that of its twin, and
// no lease is prolonged. Once the network is healthy, all views are equal and correct
// (S3.2, S3.4, S3.5, S3.7).
func TestSetsAgreeWithTheirTwinsAndTheTruth(t *testing.T) {
	trouble, quiet := 300, 180 // ticks; together less than forgetAfter
	if testing.Short() {
		trouble = 100
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 6).Draw(t, "nodes"))
		w.loss = float64(rapid.IntRange(0, 50).Draw(t, "loss %")) / 100
		w.double = float64(rapid.IntRange(0, 30).Draw(t, "doubled %")) / 100
		w.maxDelay = time.Duration(rapid.IntRange(1, 100).Draw(t, "delay ms")) * ms
		switch rapid.IntRange(0, 2).Draw(t, "mode") {
		case 1:
			w.freezes = true
		case 2:
			w.setsBack = true
		}
		every := rapid.IntRange(5, 40).Draw(t, "ticks between troubles")
		for tick := range trouble {
			if tick%every == every-1 {
				w.trouble()
			}
			w.step(tick)
		}
		w.calm()
		for tick := range quiet {
			w.step(trouble + tick)
		}
		var truth []string
		for _, n := range w.nodes {
			if w.runs(n) {
				truth = append(truth, fmt.Sprintf("%s/%d %v", n.id, n.set.Self().Incarnation, n.set.State()))
			}
		}
		digests := make(map[uint64]bool)
		for _, n := range w.nodes {
			if !w.runs(n) {
				continue
			}
			digests[n.set.View().Digest()] = true
			var got []string
			for _, m := range n.set.View().Members {
				got = append(got, fmt.Sprintf("%s/%d %v", m.ID, m.Incarnation, m.State))
			}
			if !slices.Equal(got, truth) {
				t.Fatalf("%s sees %v, true is %v", n.id, got, truth)
			}
		}
		if len(digests) > 1 {
			t.Fatalf("%d digests of one live set %v", len(digests), truth)
		}
	})
}
