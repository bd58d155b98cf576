package liveness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// looked is a Silence of many members. The store has the heartbeats of all members except the silent ones.
type looked struct {
	Silence
	members []*cluster.Member
	silent  []lease.NodeID
	now     time.Time
}

func newLooked(members int) *looked {
	l := &looked{Silence: Silence{TTL: 6 * time.Second}, now: time.Unix(1e9, 0)}
	for i := range members {
		l.members = append(l.members,
			&cluster.Member{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprintf("n%04d", i)), Incarnation: 1, Capacity: 100}})
	}
	return l
}

// look performs two looks in each TTL until span has passed.
func (l *looked) look(t *testing.T, span time.Duration) {
	t.Helper()
	for end := l.now.Add(span); l.now.Before(end); {
		l.now = l.now.Add(l.TTL / 2)
		ask := l.Ask(l.members)
		hears := make([]bool, len(ask))
		for i, at := range ask {
			hears[i] = !slices.Contains(l.silent, at.Node)
		}
		if len(ask) > lookAtOnce {
			t.Fatalf("%d members in one look", len(ask))
		}
		l.Learn(l.members, ask, hears, l.now)
	}
}

func (l *looked) want(t *testing.T, when string, want ...lease.NodeID) {
	t.Helper()
	if got := l.Named(); !slices.Equal(got, want) || len(l.Silent()) != len(want) {
		t.Errorf("%s: silent are %q and %v, want %q", when, got, l.Silent(), want)
	}
}

// Even in a large cluster, the looks reach every member, so every silent member is found.
func TestSilenceOfMany(t *testing.T) {
	l := newLooked(1000)
	l.look(t, time.Minute)
	l.want(t, "all send heartbeats")
	l.silent = []lease.NodeID{"n0003", "n0500", "n0999"}
	l.look(t, 3*time.Minute)
	l.want(t, "some send none", l.silent...)
	l.silent = l.silent[:1]
	l.look(t, time.Minute)
	l.want(t, "most are back", "n0003")
	l.members = l.members[500:]
	l.look(t, 5*time.Second)
	l.want(t, "the last one has ended")
	l.members = nil
	l.look(t, time.Minute)
	l.want(t, "there is no other member")
}

// A pause between looks neither makes a member silent nor ends its silence.
func TestSilenceInPause(t *testing.T) {
	l := newLooked(3)
	l.silent = []lease.NodeID{"n0001"}
	for range 5 {
		l.look(t, 5*time.Second)
		l.now = l.now.Add(time.Minute) // the store is away
	}
	l.want(t, "two looks at a time")
	l.look(t, 20*time.Second)
	l.want(t, "many looks", "n0001")
	l.now = l.now.Add(time.Minute)
	l.look(t, time.Second)
	l.want(t, "after a pause", "n0001")
	l.members[1].Incarnation++
	l.look(t, time.Second)
	l.want(t, "after its restart")
}
