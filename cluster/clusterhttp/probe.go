package clusterhttp

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/lease"
)

type status struct {
	Status string `json:"status"`
}

// healthz depends only on this process. If the probe depended on peers, a short network failure would make the
// orchestrator restart the whole fleet. healthz also ignores the health of the application, because an unhealthy
// application is not a reason to restart its agent.
func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	if a.closed() {
		a.problemOf(cluster.ErrClosed).write(w)
		return
	}
	if p := a.stalled(); p != nil {
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, status{"ok"})
}

// stalled returns a problem if the agent's loop is stalled, and nil otherwise.
func (a *api) stalled() *Problem {
	age := a.agent.LoopAge()
	if age <= a.ttl {
		return nil
	}
	return problem(http.StatusServiceUnavailable, CodeStalled,
		"the agent's loop has been stuck for %v, longer than the TTL of %v: a strategy does not return, or the process gets no CPU",
		age.Round(time.Millisecond), a.ttl)
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	p := &Problem{Status: http.StatusServiceUnavailable, Code: CodeNotReady}
	s := a.agent.Snapshot()
	switch p.State = a.state(s); p.State {
	case "active":
		writeJSON(w, http.StatusOK, status{"ready"})
		return
	case "left":
		p = a.problemOf(cluster.ErrClosed)
		p.State = "left"
	case "joining":
		p.Message = "joining: this node's lease expired; it is rejoining"
		if s.Waits != nil {
			p.Message += ": " + s.Waits.Error()
		}
	default:
		p.Message = p.State + ": this node is not an owner yet"
		if len(s.Holds) > 0 {
			p.Message = explain(s)
		}
	}
	p.write(w)
}

// explain returns text that explains why this node owns nothing, and what to do.
func explain(s *cluster.Snapshot) string {
	e := holdOf(s.Holds[0]).Explain()
	if s.Unreachable != nil {
		e.Finding += "; " + s.Unreachable.Error()
	}
	return fmt.Sprintf("not ready: it %s. This means: %s. What to do: %s", e.Finding, e.Means, e.Do)
}

const (
	defaultOver = 2 * time.Second // time between the two looks of /v1/doctor
	maxOver     = 5 * time.Second

	// maxExamined is how many examinations can run at the same time. Each examination holds a list of all
	// members for up to maxOver, and then makes a second list. With lease.MaxNodes members, a list takes 4
	// MB, so all examinations together take at most 70 MB.
	//
	// The dashboard uses three values of over, with at most two examinations for each, no matter how many
	// pages are open. Clients that use eight other values can make the dashboard wait.
	maxExamined = 8
)

// examinations are the running examinations.
type examinations struct {
	mu      sync.Mutex
	running int
	latest  map[time.Duration]*examination // the key is the time between the two looks
}

// examination is shared by calls with the same over that arrive in its first half. The second look therefore takes
// place after all these calls have arrived.
type examination struct {
	doctor.Examination

	began time.Time
	done  chan struct{} // closed when the examination has both looks
}

// enter returns the examination for a call. If leads is true, the caller must carry out the examination and
// then call leave. e is nil if too many examinations are running.
func (x *examinations) enter(over time.Duration) (e *examination, leads bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if e := x.latest[over]; e != nil && now.Sub(e.began) < over/2 {
		return e, false
	}
	if x.running == maxExamined {
		return nil, false
	}
	e = &examination{Examination: doctor.Examination{Over: over}, began: now, done: make(chan struct{})}
	x.running++
	x.latest[over] = e
	return e, true
}

func (x *examinations) leave(e *examination) {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(e.done)
	x.running--
	if x.latest[e.Over] == e {
		delete(x.latest, e.Over)
	}
}

// doctor looks at the agent twice and returns the diagnosis. The command roost doctor also looks twice, but
// via the API.
func (a *api) doctor(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	over, p := durationOf(r, "over", defaultOver, 0, maxOver)
	if p != nil {
		return nil, p
	}
	e, leads := a.examinations.enter(over)
	if e == nil {
		return nil, problem(http.StatusServiceUnavailable, CodeBusy, "too many clients are checking the cluster; try again in a second")
	}
	stop, _ := r.Context().Value(stopKey{}).(<-chan struct{})
	if leads {
		a.lead(e, stop)
	} else {
		select {
		case <-e.done:
		case <-r.Context().Done():
			return nil, a.problemOf(cluster.ErrClosed) // no client reads this
		case <-stop:
			return nil, a.problemOf(cluster.ErrClosed)
		}
	}
	if a.closed() {
		return nil, a.problemOf(cluster.ErrClosed)
	}
	mine := e.Examination
	mine.Addr = r.Host
	d := mine.Diagnose()
	return &d, nil
}

// lead carries out an examination. The examination continues even if its caller disconnects, because other
// calls may wait for the result.
func (a *api) lead(e *examination, stop <-chan struct{}) {
	defer a.examinations.leave(e)
	e.Before = a.look()
	select {
	case <-time.After(e.Over):
	case <-a.agent.Done():
	case <-stop:
	}
	e.After = a.look()
}

// look returns the data that the checks need. The list of owners is left out, because no check uses it.
func (a *api) look() doctor.Look {
	s := a.agent.Snapshot()
	l := doctor.Look{Stats: a.statsOf(s), Members: a.membersOf(s), History: a.pastOf()}
	if s.Table != nil {
		b := s.Table.Balance()
		l.Table = Partitions{Counts: b.Counts, Balance: Balance{MaxMean: b.MaxMean, CV: b.CV, Advice: b.Advice()}}
		l.Table.Partitions = s.Table.Partitions()
	}
	return l
}

// state returns the phase of this node. If the node has a hold, state returns the cause of the first hold
// instead.
func (a *api) state(s *cluster.Snapshot) string {
	switch {
	case a.closed() || s.Self.State == lease.Left:
		return "left"
	case s.Waits != nil, s.Fenced, s.Self.Age() > a.ttl: // the process was paused; the agent's loop may not have noticed yet
		return "joining"
	case len(s.Holds) > 0:
		return string(s.Holds[0].Cause)
	case s.Phase == cluster.PhaseIsolated:
		return "isolated"
	case s.Self.State == lease.Active && s.Table != nil:
		return "active"
	default:
		return "settling"
	}
}
