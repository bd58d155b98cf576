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
// longer than the interval has failed, and fails again after each further interval.
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
			tick.Reset(a.cfg.HealthInterval) // so that the next check has its full time, too
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// beginCheck starts a check. The agent does not wait for its end, because the check may never return.
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

// Bounds of ReportHealth's ttl.
const (
	MinHealthTTL = 100 * time.Millisecond
	MaxHealthTTL = time.Hour
)

// ReportHealth says that the application of this node is healthy, and that the next report follows within
// ttl. If the next report does not come in time, the application counts as unhealthy, and the node drains
// until two reports in a row are in time. With a ttl of 0, no further report is expected. ReportHealth is for
// applications in another process. In this process, set Config.Health instead.
func (a *Agent) ReportHealth(ttl time.Duration) error {
	if ttl != 0 && (ttl < MinHealthTTL || ttl > MaxHealthTTL) {
		return fmt.Errorf("cluster: health for %v; it must be 0, or %v to %v", ttl, MinHealthTTL, MaxHealthTTL)
	}
	return a.command(func(now time.Time, n *node.Node) { n.Reported(now, ttl) })
}

// Cordon keeps a node from owning anything, in the view of all members, until a set time. It belongs to the
// node's id, so a restart of the node does not end it.
type Cordon struct {
	ID     lease.NodeID
	Until  time.Time // by this node's clock
	Reason string
}

// Cordon keeps a member from owning anything for the time d, at most lease.MaxCordonTime, in the view of all
// members, including members that join later. The node stays a member and shows as draining. A second cordon
// of a member replaces the first. Uncordon ends a cordon early. The reason is shown to people: one line of at
// most lease.MaxReasonBytes.
//
// Cordon returns when all live members run a table without the node. If ctx ends first, the cordon still
// spreads. Cordon fails with ErrNotMember, with ErrLastCandidate if no other member could own anything, with
// ErrCordons if too many nodes are cordoned, with ErrNotReady while this node joins for the first time, and
// with ErrFenced while it joins again.
func (a *Agent) Cordon(ctx context.Context, id lease.NodeID, d time.Duration, reason string) error {
	if d <= 0 {
		return fmt.Errorf("cluster: cordon %s for %v: give a time above 0; Uncordon ends a cordon", id, d)
	}
	if err := a.decide(ctx, id, d, reason); err != nil {
		return fmt.Errorf("cluster: cordon %s: %w", id, err)
	}
	return nil
}

// Uncordon ends the cordon of a member early, if there is one. It returns and fails in the same cases as
// Cordon.
func (a *Agent) Uncordon(ctx context.Context, id lease.NodeID) error {
	if err := a.decide(ctx, id, 0, ""); err != nil {
		return fmt.Errorf("cluster: uncordon %s: %w", id, err)
	}
	return nil
}

// decide cordons a member, or ends its cordon if d is 0.
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

// placesRightly reports whether the table includes the member exactly if the member is a candidate.
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
