package affinity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// participant is one call of Serve.
type participant struct {
	leave context.CancelFunc
	ended chan error
	cause error // why the context of f ended
	h     *affinity.Hosting
}

func (f *fleet) participant(id lease.NodeID, d affinity.Demand) *participant {
	f.t.Helper()
	ctx, leave := context.WithCancel(f.t.Context())
	p := &participant{leave: leave, ended: make(chan error, 1)}
	go func() {
		p.ended <- f.rooms[string(id)].Serve(ctx, "r", d, func(ctx context.Context, h *affinity.Hosting) error {
			p.h = h
			<-ctx.Done()
			p.cause = context.Cause(ctx)
			return p.cause
		})
	}()
	synctest.Wait()
	return p
}

func (f *fleet) wantSize(id lease.NodeID, size int) {
	f.t.Helper()
	rooms, _ := f.rooms[string(id)].Hosted()
	if len(rooms) == 0 && size < 0 {
		return
	}
	if len(rooms) != 1 || rooms[0].Size != size {
		f.t.Errorf("%s hosts %+v, want one room of %d", id, rooms, size)
	}
}

// Participants enter and leave. The room keeps its node for 10 s after the last participant has left.
func TestServe(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		at := f.resolve("a", "r", 1).Node
		ada := f.participant(at, affinity.Demand{})
		bob := f.participant(at, affinity.Demand{})
		f.wantSize(at, 2)
		ada.leave()
		if err := <-ada.ended; !errors.Is(err, context.Canceled) || ada.h != bob.h {
			t.Errorf("ada's call ends with %v, hostings %p and %p", err, ada.h, bob.h)
		}
		f.wantSize(at, 1)
		bob.leave()
		<-bob.ended
		time.Sleep(5 * time.Second)
		dan := f.participant(at, affinity.Demand{}) // the 10 s begin again
		dan.leave()
		<-dan.ended
		time.Sleep(9 * time.Second)
		f.wantSize(at, 0)
		cy := f.participant(at, affinity.Demand{}) // before the 10 s are over
		time.Sleep(5 * time.Second)
		f.wantSize(at, 1)
		cy.leave()
		<-cy.ended
		time.Sleep(9 * time.Second)
		f.wantSize(at, 0)
		time.Sleep(2 * time.Second)
		f.wantSize(at, -1)
		if _, err := f.rooms["a"].Lookup(t.Context(), "r"); !errors.Is(err, affinity.ErrNoPin) || !errors.Is(cy.h.Err(), affinity.ErrReleased) {
			t.Errorf("after the linger: %v, hosting %v", err, cy.h.Err())
		}
	})
}

// If Host is called for a participant who never enters, the 10 s begin again, and then the room is released.
func TestServeAndHost(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		at := f.resolve("a", "r", 1).Node
		ada := f.participant(at, affinity.Demand{})
		ada.leave()
		<-ada.ended
		time.Sleep(5 * time.Second)
		f.hostAt(string(at), "r", 0)
		time.Sleep(9 * time.Second)
		f.wantSize(at, 0)
		time.Sleep(2 * time.Second)
		f.wantSize(at, -1)
	})
}

// A demand is a lower bound until a participant leaves.
func TestServeDemand(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		at := f.resolve("a", "r", 5).Node
		ada := f.participant(at, affinity.Demand{Size: 5})
		f.participant(at, affinity.Demand{})
		f.wantSize(at, 5)
		ada.leave()
		<-ada.ended
		f.wantSize(at, 1)
	})
}

// When a room is lost, the Serve calls of all its participants end with the reason.
func TestServeLost(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		at := f.resolve("a", "r", 1).Node
		ada, bob := f.participant(at, affinity.Demand{}), f.participant(at, affinity.Demand{})
		to := lease.NodeID(f.not(string(at)))
		f.move("a", string(to))
		for _, p := range []*participant{ada, bob} {
			var elsewhere *affinity.NotOwnerError
			if err := <-p.ended; !errors.As(err, &elsewhere) || elsewhere.Owner.Node != to || !errors.Is(p.cause, affinity.ErrNotOwner) {
				t.Errorf("ends with %v, cause %v", err, p.cause)
			}
		}
		if err := f.rooms[string(at)].Serve(t.Context(), "r", affinity.Demand{}, nil); !errors.Is(err, affinity.ErrNotOwner) {
			t.Errorf("on the old node: %v", err)
		}
		f.participant(to, affinity.Demand{})
		f.wantSize(to, 1)
		want := errors.New("done")
		err := f.rooms[string(to)].Serve(t.Context(), "r", affinity.Demand{}, func(context.Context, *affinity.Hosting) error { return want })
		if !errors.Is(err, want) {
			t.Errorf("the error of f: %v", err)
		}
	})
}
