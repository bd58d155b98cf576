package affinity_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// The store refuses a member because of its Cost, which gossip does not compare. Other nodes must not place rooms on
// this member, because it could not host them. Its own rooms stay, and it gets rooms again once its settings are right.
func TestRefusedMemberGetsNoRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		right := f.cfg
		away := &faulty{Store: store.Store}
		away.fails.Store(true)
		f.store, f.cfg.Cost = away, twice
		f.start("x")
		early := f.hostAt("x", "early", 1)
		away.fails.Store(false)
		time.Sleep(soon)
		if f.rooms["x"].Stats().Refused == "" {
			t.Fatal("not refused")
		}
		f.headroom("refused", "x", 0)
		onX := func() (rooms int) {
			for i, room := range names(60) {
				at := f.resolve("ab"[i%2:i%2+1], room, 1)
				if _, err := f.rooms[string(at.Node)].Host(t.Context(), room, affinity.Demand{Size: 1}); at.Node == "x" || err != nil {
					rooms++
				}
			}
			return rooms
		}
		if n := onX(); n > 0 {
			t.Errorf("%d of 60 rooms went to the node that is refused", n)
		}
		_, err := f.rooms["a"].Move(t.Context(), names(1)[0], "x")
		if !errors.Is(err, affinity.ErrNotLive) || !strings.Contains(err.Error(), "settings") {
			t.Errorf("moved to the node that is refused: %v", err)
		}
		e, err := f.rooms["a"].Explain(t.Context(), "another", affinity.Demand{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Candidates {
			if (c.Member.ID == "x") != strings.Contains(c.Why, "settings") || (c.Preference == 0) != (c.Member.ID == "x") {
				t.Errorf("%s on preference %d: %s", c.Member.ID, c.Preference, c.Why)
			}
		}
		if relays, err := f.rooms["a"].Relays(t.Context(), "another", affinity.Demand{Size: 1}, 5); err != nil || len(relays) != 1 {
			t.Errorf("relays %v, %v", relays, err)
		}
		if lost(early) {
			t.Error("the room that runs there is lost:", early.Err())
		}

		_ = f.rooms["x"].Close()
		f.cfg = right
		f.resolver("x")
		time.Sleep(soon)
		for _, room := range names(60) {
			if err := f.rooms["a"].Release(t.Context(), room); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		spread := 0
		for _, room := range names(60) {
			if f.resolve("a", room, 1).Node == "x" {
				spread++
			}
		}
		if spread == 0 {
			t.Error("it gets no rooms with the settings of the others")
		}
	})
}
