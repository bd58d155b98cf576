package affinity_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Every room costs something, because otherwise any number of one-person rooms would fit on a node.
func TestEveryRoomCosts(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		at := make(map[affinity.Source]int)
		for i := range 2000 {
			at[f.resolve("a", fmt.Sprint("single-", i), i%2).Source]++
		}
		if at[affinity.Override] == 0 {
			t.Errorf("2,000 rooms of none or one on two nodes with headroom for 800 each: %v", at)
		}
	})
}

// A join must not lower the size of a running room. Only the room's host can lower it, with Touch.
func TestJoinKeepsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{PinTTL: 3 * time.Minute}, "a", "b")
		check := func(what string, want int) {
			t.Helper()
			for id := range f.rooms {
				for _, room := range first(f.rooms[id].Hosted()) {
					if room.Size != want {
						t.Errorf("%s: the room has size %d, want %d", what, room.Size, want)
					}
				}
			}
			time.Sleep(75 * time.Second) // the pin is refreshed
			if pin := pins(t, f.store)["r"]; pin.Size != want {
				t.Errorf("%s: the pin says %d, want %d", what, pin.Size, want)
			}
		}
		at := f.resolve("a", "r", 20)
		home := f.rooms[string(at.Node)]
		h, err := home.Host(t.Context(), "r", affinity.Demand{})
		if err != nil {
			t.Fatal(err)
		}
		check("hosted without a size after a resolve with 20", 20)
		for _, size := range []int{1, 0, 5} {
			if _, err := home.Host(t.Context(), "r", affinity.Demand{Size: size}); err != nil {
				t.Fatal(err)
			}
			f.resolve("b", "r", size)
		}
		check("joined with 1, 0 and 5", 20)
		if _, err := home.Host(t.Context(), "r", affinity.Demand{Size: 30}); err != nil {
			t.Fatal(err)
		}
		check("joined with 30", 30)
		h.Touch(4)
		check("its host says 4", 4)
	})
}

func first[A, B any](a A, _ B) A { return a }

// If a node has a capacity but reports no load, the log and Explain name the problem. Until it reports a
// load, its rooms count as its load.
func TestCapacityWithoutLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{ReportLoad: true, Log: slog.New(slog.NewTextHandler(&log, nil))}, "a")
		f.Start("b")
		r, err := affinity.Start(f.Agent("b"), f.store, affinity.Config{Log: f.cfg.Log})
		if err != nil {
			t.Fatal(err)
		}
		f.rooms["b"] = r
		t.Cleanup(func() { _ = r.Close() })
		f.WaitAgreed(3 * time.Second)
		const warning = `msg="risky configuration" node=b`
		if strings.Contains(log.text(), warning) {
			t.Error("warned before the application could report a load")
		}
		time.Sleep(30 * time.Second)
		if !strings.Contains(log.text(), warning) || strings.Contains(log.text(), `msg="risky configuration" node=a`) {
			t.Errorf("no warning for b, or one for a: %s", log.text())
		}
		at := make(map[lease.NodeID]int)
		for i := range 1000 {
			at[f.resolve("a", fmt.Sprint("r-", i), 2).Node]++
			time.Sleep(100 * time.Millisecond)
		}
		if at["b"] > 400 {
			t.Errorf("b has a ceiling of 400 rooms of two and got %d", at["b"])
		}
		e, err := f.rooms["a"].Explain(t.Context(), "another", affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Candidates {
			if (c.Member.ID == "b") != strings.Contains(c.Why, "reports no load") {
				t.Errorf("%s: %s", c.Member.ID, c.Why)
			}
		}
	})
}

// lines is a log to which several resolvers write.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) text() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
