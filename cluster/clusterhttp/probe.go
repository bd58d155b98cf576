package clusterhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/lease"
)

type status struct {
	Status string `json:"status"`
}

// healthz depends on this process alone: a probe that fails because of peers would
// restart a whole fleet after a short network failure. An ill program next to the agent is
// no reason to restart the agent.
func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	if a.closed() {
		a.problemOf(cluster.ErrClosed).write(w)
		return
	}
	if age := a.agent.LoopAge(); age > a.ttl {
		p := &Problem{Status: http.StatusServiceUnavailable, Code: CodeStalled}
		p.Message = fmt.Sprintf("the agent's loop has not gone round for %v, longer than the TTL of %v: a strategy does not return, or the process gets no CPU", age.Round(time.Millisecond), a.ttl)
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, status{"ok"})
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	p := &Problem{Status: http.StatusServiceUnavailable, Code: CodeNotReady}
	switch p.State = a.state(); p.State {
	case "active":
		writeJSON(w, http.StatusOK, status{"ready"})
		return
	case "joining":
		p.Message = "joining: this node's lease expired; it is rejoining"
		if why := a.agent.Snapshot().Waits; why != nil {
			p.Message += ": " + why.Error()
		}
	case "settling":
		p.Message = "settling: this node has not taken its place yet"
	case "isolated":
		p.Message = "isolated: this node owns nothing: " + a.isolated()
	case "ill":
		p.Message = fmt.Sprintf("ill: this node owns nothing, because its program is ill: %v", a.agent.Snapshot().Ill)
	case "held":
		left := max(0, time.Until(a.agent.Snapshot().Self.Held)).Round(time.Second)
		p.Message = fmt.Sprintf("held: this node came and went too often; it owns nothing for another %v", left)
	case "evicted":
		p.Message = "evicted: this node owns nothing until its eviction ends"
		if e, ok := a.agent.Snapshot().EvictionOf(a.self); ok {
			p.Message += fmt.Sprintf(", in %v: %s", time.Until(e.Until).Round(time.Second), cmp.Or(e.Reason, "no reason given"))
		}
	case "draining":
		p.Message = "draining: this node releases its partitions"
	default:
		p = a.problemOf(cluster.ErrClosed)
		p.State = "left"
	}
	p.write(w)
}

const (
	defaultOver = 2 * time.Second // between two looks of doctor
	maxOver     = 30 * time.Second

	// maxExamined is how many calls look at a time. Each holds a list of all members for up to maxOver, 4 MB of lease.MaxNodes, so
	// they take at most 70 MB with those of the second look. A page looks for 2 s, rests for 1 s, and shows
	// answers for 10 s: two dozen pages share 8.
	maxExamined = 8
)

// doctor looks twice, as roost doctor does through the API, and returns what it finds.
func (a *api) doctor(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	over, p := durationOf(r, "over", defaultOver, 0, maxOver)
	if p != nil {
		return nil, p
	}
	select {
	case a.examining <- struct{}{}:
		defer func() { <-a.examining }()
	default:
		return nil, &Problem{Status: http.StatusServiceUnavailable, Code: CodeBusy, Message: "too many clients have the cluster checked; try again in a second"}
	}
	before := a.look()
	stop, _ := r.Context().Value(stopKey{}).(<-chan struct{})
	select {
	case <-time.After(over):
	case <-r.Context().Done():
	case <-a.agent.Done():
	case <-stop:
	}
	if a.closed() {
		return nil, a.problemOf(cluster.ErrClosed)
	}
	d := doctor.Examination{Before: before, After: a.look(), Over: over, Addr: r.Host}.Diagnose()
	return &d, nil
}

// look has what the checks read: they need no list of owners.
func (a *api) look() doctor.Look {
	s := a.agent.Snapshot()
	l := doctor.Look{Stats: a.statsOf(), Members: a.membersOf(s), History: a.pastOf()}
	if s.Table != nil {
		b := s.Table.Balance()
		l.Table = Partitions{Counts: b.Counts, Balance: Balance{MaxMean: b.MaxMean, CV: b.CV, Advice: b.Advice()}}
		l.Table.Partitions = s.Table.Partitions()
	}
	return l
}

// isolated returns why this node is isolated; "" = it is not.
func (a *api) isolated() string {
	if why := a.agent.Snapshot().Isolated; why != nil {
		return why.Error()
	}
	return ""
}

// state returns the phase of this node, by its own knowledge.
func (a *api) state() string {
	s := a.agent.Snapshot()
	switch {
	case a.closed() || s.Self.State == lease.Left:
		return "left"
	case s.Waits != nil, s.Self.Age() > a.ttl: // the process was paused; its loop may not know yet
		return "joining"
	case s.Phase == cluster.PhaseIsolated:
		return "isolated"
	case s.Self.State == lease.Draining:
		return whyDraining(s)
	case s.Self.State == lease.Active && s.State != nil:
		return "active"
	default:
		return "settling"
	}
}

// whyDraining returns the state of a node that drains, by the reason.
func whyDraining(s *cluster.Snapshot) string {
	_, evicted := s.EvictionOf(s.Self.ID)
	switch {
	case s.Ill != nil:
		return "ill"
	case !s.Self.Held.IsZero():
		return "held"
	case evicted:
		return "evicted"
	}
	return "draining"
}
