package affinity_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

// followed contains the directives of a room at node a until the latest synctest.Wait.
func (f *fleet) followed(ctx context.Context, room string) *[]reconnect.Directive {
	list := new([]reconnect.Directive)
	go func() {
		for d := range f.rooms["a"].Follow(ctx, room) {
			*list = append(*list, d)
		}
	}()
	return list
}

func wantFollowed(t *testing.T, what string, got *[]reconnect.Directive, n int, to lease.NodeID, epoch uint64) {
	t.Helper()
	synctest.Wait()
	if len(*got) != n || n > 0 && ((*got)[n-1].To != to || (*got)[n-1].Epoch != epoch || (*got)[n-1].Room != "r") {
		t.Errorf("%s: %+v; want %d directives, the last one to %s at %d", what, *got, n, to, epoch)
	}
}

// A caller of Follow receives the room's first node, its node after a Move, and its node after a failover. The caller's
// own node has nothing else to do with the room.
func TestFollow(t *testing.T) {
	inFleet(t, "a b c d", func(t *testing.T, f *fleet) {
		const at = "a"
		ctx, cancel := context.WithCancel(t.Context())
		got := f.followed(ctx, "r")
		none := f.followed(ctx, "r*")
		other := f.followed(ctx, "other")
		time.Sleep(3 * time.Second)
		wantFollowed(t, "without a pin", got, 0, "", 0)

		h := f.host("b", "r", 3)
		from := f.resolve("b", "r", 3).Node
		time.Sleep(3 * time.Second)
		wantFollowed(t, "pinned", got, 1, from, h.Epoch())

		to := f.not(at, string(from))
		moved := f.move("b", to)
		time.Sleep(time.Second)
		wantFollowed(t, "moved", got, 2, lease.NodeID(to), moved.Epoch)

		f.crash(to)
		time.Sleep(soon)
		now := f.resolve(at, "r", 3)
		wantFollowed(t, "failed over", got, 3, now.Node, now.Epoch)

		f.rooms[at].Changed("") // the store was away
		time.Sleep(3 * time.Second)
		wantFollowed(t, "after a resync", got, 3, now.Node, now.Epoch)

		cancel()
		synctest.Wait()
		if len(*none)+len(*other) != 0 {
			t.Errorf("an invalid name: %+v, another room: %+v", *none, *other)
		}
		ended := make(chan struct{})
		go func() {
			for range f.rooms[at].Follow(t.Context(), "r") {
			}
			close(ended)
		}()
		_ = f.rooms[at].Close()
		<-ended
	})
}

// A node is not notified of a move because its cache has evicted the room. Follow must find the move anyway, without a
// call of Resolve.
func TestFollowFindsMissedMoves(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		h := f.host("b", "r", 3)
		got := f.followed(t.Context(), "r")
		time.Sleep(time.Second)
		wantFollowed(t, "pinned", got, 1, f.resolve("b", "r", 3).Node, h.Epoch())
		f.rooms["a"].Forget("r") // evicted: this node is not notified of the room
		to := f.not(string(f.resolve("b", "r", 3).Node))
		moved := f.move("b", to)
		time.Sleep(3 * time.Second)
		wantFollowed(t, "moved unseen", got, 2, lease.NodeID(to), moved.Epoch)
	})
}

// An agent that is cut off from gossip sends its clients to the last known address of a node. If the agent does not
// know the node's address yet, Follow yields the directive once the agent knows it.
func TestFollowInCut(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		f.host("b", "r", 3)
		f.move("b", "b")
		got := f.followed(t.Context(), "r")
		time.Sleep(3 * time.Second)
		f.Start("d")
		f.Split([]string{"a"}, []string{"b", "c", "d"})
		f.resolver("d")
		time.Sleep(soon)
		if n := len(f.Agent("a").Members()); n != 1 {
			t.Fatalf("a sees %d members", n)
		}
		met := f.move("b", "c")
		time.Sleep(3 * time.Second)
		wantFollowed(t, "moved to a node that was met", got, 2, "c", met.Epoch)
		if addr := (*got)[1].Addr; addr != addrOf("c") {
			t.Errorf("the address is %q", addr)
		}
		never := f.move("b", "d")
		time.Sleep(3 * time.Second)
		wantFollowed(t, "moved to a node that was never met", got, 2, "c", met.Epoch)
		f.Heal()
		time.Sleep(soon)
		wantFollowed(t, "after the cut", got, 3, "d", never.Epoch)
		if addr := (*got)[2].Addr; addr != addrOf("d") {
			t.Errorf("the address is %q", addr)
		}
	})
}

// The store has lost a pin, and the host restores it with a greater epoch. The room has not moved, so its clients must
// not reconnect. The next move must yield a directive again.
func TestFollowIgnoresRestoredPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		f := newFleet(t, data, affinity.Config{}, "a", "b", "c")
		time.Sleep(5 * time.Second)
		h := f.host("b", "r", 3)
		home := f.resolve("b", "r", 3)
		if home.Node == "a" {
			t.Fatal("the agent that follows must be another node than the host")
		}
		got := f.followed(t.Context(), "r")
		time.Sleep(3 * time.Second)
		wantFollowed(t, "pinned", got, 1, home.Node, h.Epoch())

		before := h.Epoch()
		data.empty()
		time.Sleep(10 * time.Second)
		if lost(h) || h.Epoch() <= before {
			t.Fatalf("the pin was not restored: epoch %d, then %d, %v", before, h.Epoch(), h.Err())
		}
		wantFollowed(t, "restored", got, 1, home.Node, before)

		moved := f.move("b", f.not("a", string(home.Node)))
		time.Sleep(3 * time.Second)
		wantFollowed(t, "moved", got, 2, moved.Node, moved.Epoch)
		back := f.move("b", string(home.Node))
		time.Sleep(3 * time.Second)
		wantFollowed(t, "back", got, 3, back.Node, back.Epoch)
	})
}

// The directive of an assignment contains the address of its node, or no address if there is no member.
func TestAssignmentDirective(t *testing.T) {
	at := lease.Incarnation{Node: "b", Number: 2}
	a := affinity.Assignment{
		Room:        "r",
		Incarnation: at,
		Epoch:       7,
		Reason:      "pinned",
		Member:      &cluster.Member{Profile: lease.Profile{ID: "b", APIAddr: "b.example:443"}},
	}
	want := reconnect.Directive{Room: "r", To: "b", Addr: "b.example:443", Reason: "pinned", Epoch: 7}
	if got := a.Directive(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	a.Member, want.Addr = nil, ""
	if got := a.Directive(); got != want {
		t.Errorf("without a member: got %+v, want %+v", got, want)
	}
}
