package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

var errHangs = errors.New("the check does not return")

// watchHealth checks the application of this node until ctx ends, one check at a time. A check that takes
// longer than the interval counts as a failure, and as another failure after each further interval.
func (a *Agent) watchHealth(ctx context.Context) {
	tick := time.NewTicker(a.cfg.HealthInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		result := a.beginCheck(ctx)
		inTime := true
		for ended := false; !ended; {
			select {
			case err := <-result:
				if ended = true; inTime {
					a.checked(ctx, err)
				}
			case <-tick.C:
				inTime = false
				a.checked(ctx, errHangs)
			case <-ctx.Done():
				return
			}
		}
		if !inTime {
			tick.Reset(a.cfg.HealthInterval) // give the next check a full interval
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// beginCheck starts a check. The agent does not wait for the check to return, because it may never return.
func (a *Agent) beginCheck(ctx context.Context) <-chan error {
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.HealthInterval)
		defer cancel()
		result <- a.cfg.Health(ctx)
	}()
	return result
}

func (a *Agent) checked(ctx context.Context, err error) {
	_ = a.do(ctx, func(now time.Time, n *node.Node) { n.Checked(now, err) })
}

// MinHealthTTL and MaxHealthTTL limit the ttl of ReportHealth.
const (
	MinHealthTTL = 100 * time.Millisecond
	MaxHealthTTL = time.Hour
)

// ReportHealth reports that the application of this node is healthy, and that the next report follows within
// ttl. If the next report is late, the application is considered unhealthy, and the node drains until two
// reports in a row are in time. If ttl is 0, no further report is expected. ReportHealth is for an
// application in another process. For an application in this process, set Config.Health instead.
func (a *Agent) ReportHealth(ttl time.Duration) error {
	if ttl != 0 && (ttl < MinHealthTTL || ttl > MaxHealthTTL) {
		return fmt.Errorf("cluster: health for %v: the time must be 0, or %v to %v", ttl, MinHealthTTL, MaxHealthTTL)
	}
	return a.command(func(now time.Time, n *node.Node) { n.Reported(now, ttl) })
}

// Cordon prevents a node from owning anything until a set time. All members apply the cordon. The cordon
// applies to the node's ID, so it remains after the node restarts.
type Cordon struct {
	ID     lease.NodeID
	Until  time.Time // according to this node's clock
	Reason string
}

// Cordon prevents a member from owning anything for the duration d, at most lease.MaxCordonTime. All members apply the
// cordon, including members that join later. The cordoned node remains a member and is shown as draining. A second
// cordon of a member replaces the first one. Call Uncordon to end a cordon early. Tools show the reason to people. It
// is one line of at most lease.MaxReasonBytes.
//
// Cordon returns when the tables of all live members no longer include the node. If ctx ends first, the cordon still
// spreads. Cordon returns ErrNotMember if the ID is not a member, ErrLastCandidate if no other member could own
// anything, and ErrCordons if too many nodes are cordoned. Cordon returns ErrNotReady while this node joins for the
// first time, and ErrFenced while this node joins again.
func (a *Agent) Cordon(ctx context.Context, id lease.NodeID, d time.Duration, reason string) error {
	if d <= 0 {
		return fmt.Errorf("cluster: cordon %s for %v: give a time above 0; Uncordon ends a cordon", id, d)
	}
	if err := a.decide(ctx, id, d, reason); err != nil {
		return fmt.Errorf("cluster: cordon %s: %w", id, err)
	}
	return nil
}

// Uncordon ends the cordon of a member early, if the member is cordoned. Uncordon returns at the same point
// and with the same errors as Cordon.
func (a *Agent) Uncordon(ctx context.Context, id lease.NodeID) error {
	if err := a.decide(ctx, id, 0, ""); err != nil {
		return fmt.Errorf("cluster: uncordon %s: %w", id, err)
	}
	return nil
}

// decide cordons a member for d. If d is 0, decide ends the cordon of the member.
func (a *Agent) decide(ctx context.Context, id lease.NodeID, d time.Duration, reason string) error {
	switch s := a.Snapshot(); {
	case s.Fenced:
		return ErrFenced
	case s.Phase == PhaseJoining:
		return ErrNotReady
	}
	var refused error
	cordon := func(now time.Time, n *node.Node) { refused = n.Cordon(now, id, d, reason) }
	err := a.command(cordon)
	if err == nil {
		err = refused
	}
	if err == nil {
		err = a.await(ctx, func(s *Snapshot) bool { return s.Converged() && s.placesRightly(id) })
	}
	return err
}

// placesRightly reports whether the table is correct for a member. The table must include candidates and no
// other members.
func (s *Snapshot) placesRightly(id lease.NodeID) bool {
	m, live := s.Member(id)
	candidate := live && m.State == lease.Active && m.Weight > 0
	return (s.placed(id) > 0) == candidate
}

// CordonOf returns the cordon of a node, and false if the node is not cordoned.
func (s *Snapshot) CordonOf(id lease.NodeID) (c Cordon, cordoned bool) {
	for _, c := range s.Cordons {
		if c.ID == id {
			return c, true
		}
	}
	return Cordon{}, false
}
