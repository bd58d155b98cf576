// Package survey asks the agents of all members concurrently and compares their answers.
package survey

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	atOnce = 64 // number of agents asked at a time
	rounds = 8  // limits the rounds, each of which asks the agents named in the last one, because agents could invent names forever
)

// answer is the timeout for the answer of an agent. Tests use a longer timeout.
var answer = 5 * time.Second

// Agent is the agent of a member, together with its answer.
type Agent struct {
	ID      lease.NodeID `json:"id"`
	HTTP    string       `json:"http,omitempty"`    // URL of its API, if it has one
	Problem string       `json:"problem,omitempty"` // why there is no answer
	View    *View        `json:"view,omitempty"`    // its answer

	places  []place // addresses at which others see it; one place if all agents agree
	foreign string  // name of another cluster whose agent answered at this URL
	lost    bool    // considered lost by all other agents
	left    bool    // considered left by all other agents
	problem string  // error code of its answer, if the agent runs but is not a member
	skipped bool    // the agent was not asked
	trusted bool    // HTTP comes from an agent that received the token
	asked   bool
}

// news reports whether the agent should be listed. Lost agents that do not answer are not listed.
func (a *Agent) news() bool {
	return a.View != nil || a.absent() || a.foreign != "" && !a.left || !a.lost
}

// absent reports whether the agent runs but is not a member. An agent that has left and is shutting down is
// not reported. Call absent only after all agents have answered.
func (a *Agent) absent() bool {
	return a.problem != "" && (!a.left || a.problem != clusterhttp.CodeClosed)
}

// place is an address at which at least one agent sees a member.
type place struct {
	at string
	by lease.NodeID // the first of these agents
	n  int
}

// View is what an agent reports about the members.
type View struct {
	State  string         `json:"state"`   // of the agent's own node, as in /v1/stats
	Sees   []lease.NodeID `json:"sees"`    // live members, including the agent's own node
	Lacks  []lease.NodeID `json:"lacks"`   // live in another view, or answered, but not seen by this agent
	Lost   []string       `json:"lost"`    // lost members with the reasons
	InSync bool           `json:"in_sync"` // the agent has the same table as the agent that was asked first
	digest uint64
	scopes map[string]placement.Digest
}

// Take asks the agent of s, and then the agents of all members that any agent knows. Members that agents
// consider lost are included, because their processes can still run. The result starts with the agent of s,
// followed by the other agents sorted by ID.
//
// Take returns an error only if the agent of s fails. If then is not nil, Take calls it concurrently for each
// other agent that has answered. If then returns an error, that error replaces the answer. If ctx ends, the
// Problem of each agent that was not asked says so.
func Take(ctx context.Context, s *session.Session, then Then, progress func(done, of int)) ([]Agent, error) {
	t := &taking{known: make(map[lease.NodeID]*Agent), progress: progress}
	first := &Agent{HTTP: s.Addr, asked: true}
	if err := t.ask(ctx, s, first); err != nil {
		return nil, err
	}
	t.then = then
	for i := 0; len(t.next) > 0 && i < rounds; i++ {
		t.round(ctx, s)
	}
	for _, a := range t.next {
		a.Problem, a.skipped = "not asked: each agent names another agent that no other agent knows", true
	}
	agents := []Agent{*first}
	for _, a := range t.known {
		if a == first || !a.news() {
			continue
		}
		if a.HTTP == "" {
			a.Problem = "reports no HTTP address that others can reach"
		}
		agents = append(agents, *a)
	}
	slices.SortFunc(agents[1:], func(a, b Agent) int { return cmp.Compare(a.ID, b.ID) })
	compare(agents)
	return agents, nil
}

// Then makes further requests to an agent that has answered.
type Then func(context.Context, *session.Session, lease.NodeID) error

// taking is a survey in progress.
type taking struct {
	then     Then
	progress func(done, of int) // may be nil
	cluster  string             // of the first agent

	mu    sync.Mutex
	done  int // agents that were asked, except the first
	of    int // agents to ask, except the first
	known map[lease.NodeID]*Agent
	next  []*Agent // agents to ask in the next round

	showing sync.Mutex // held while progress is shown
}

// round asks all agents that are known but have not been asked yet.
func (t *taking) round(ctx context.Context, s *session.Session) {
	todo := t.next
	t.next = nil
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, a := range todo {
		a.asked = true
	}
	for i, a := range todo {
		slots <- struct{}{} // blocks no longer than ctx and answer allow
		if ctx.Err() != nil {
			for _, a := range todo[i:] {
				a.Problem, a.skipped = "not asked: time ran out", true
			}
			break
		}
		other := s.At(a.HTTP, a.trusted)
		wait.Go(func() {
			defer func() { <-slots; t.count() }()
			other.Timeout = min(s.Timeout, answer)
			if err := t.ask(ctx, other, a); err != nil {
				a.View, a.Problem = nil, reason(ctx, other, err)
				if p := session.Absent(err); p != nil {
					a.problem = p.Code
				}
			}
		})
	}
	wait.Wait()
}

// count counts an agent that was asked, and shows the progress. If another call of count is still showing
// progress, count returns at once, so that a blocked terminal does not delay other agents.
func (t *taking) count() {
	t.mu.Lock()
	t.done++
	t.mu.Unlock()
	if t.progress == nil || !t.showing.TryLock() {
		return
	}
	defer t.showing.Unlock()
	t.mu.Lock()
	done, of := t.done, t.of
	t.mu.Unlock()
	t.progress(done, of)
}

// ask asks an agent for its members, and records which other agents it knows.
func (t *taking) ask(ctx context.Context, s *session.Session, a *Agent) error {
	bound, cancel := s.Bound(ctx)
	defer cancel()
	m, err := s.Members(bound)
	if err != nil {
		return err
	}
	stats, err := s.Stats(bound)
	if err != nil {
		return err
	}
	switch name := stats.Settings.Cluster; {
	case m.Self.Validate() != nil:
		return fmt.Errorf("the agent at %s reports an invalid node id: %.80q", s.Addr, m.Self)
	case a.ID == "":
		t.cluster = name
	case name != t.cluster && name != "" && t.cluster != "": // agents of old releases do not report their cluster
		a.foreign = short(name, maxWord)
		return fmt.Errorf("the agent at %s belongs to cluster %.64q, not to %.64q", s.Addr, name, t.cluster)
	case a.ID != m.Self:
		return fmt.Errorf("the agent at %s belongs to node %s", s.Addr, m.Self)
	}
	a.View = &View{State: short(stats.State, maxWord), digest: uint64(m.Digest), Lost: []string{}, scopes: make(map[string]placement.Digest)}
	for _, s := range stats.Scopes[:min(len(stats.Scopes), cluster.MaxScopes)] {
		a.View.scopes[short(s.Name, cluster.MaxScopeName)] = s.Digest
	}
	t.note(a, m, s.Token != "")
	if t.then == nil {
		return nil
	}
	return t.then(ctx, s, m.Self)
}

// note records the answer of an agent. trusted says that the agent received the token.
func (t *taking) note(a *Agent, m clusterhttp.Members, trusted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.ID == "" {
		a.ID = m.Self
		t.known[a.ID] = a
	}
	for _, n := range m.Members[:min(len(m.Members), lease.MaxNodes)] { // sorted by id
		if id := t.meet(n.ID, n.HTTP, trusted, ""); id != "" {
			a.View.Sees = append(a.View.Sees, id)
			t.known[id].seen(n, a.ID)
		}
	}
	for _, l := range m.Lost { // a node that left can run again
		if l.Reason != lease.Departed && len(a.View.Lost) < maxLost {
			a.View.Lost = append(a.View.Lost, fmt.Sprintf("%.*s %.*s", lease.MaxIDBytes, l.ID, maxWord, l.Reason))
		}
		t.meet(l.ID, l.HTTP, trusted, l.Reason)
	}
}

// meet records a member and, if it is lost, the reason. To save memory, meet returns the id as a string that
// all answers share. If the id is invalid or there are too many members, meet returns "".
func (t *taking) meet(id lease.NodeID, at string, trusted bool, lost lease.Reason) lease.NodeID {
	a := t.known[id]
	if a == nil {
		if len(t.known) >= lease.MaxNodes || id.Validate() != nil {
			return ""
		}
		a = &Agent{ID: id, lost: true, left: true}
		t.known[id] = a
	}
	switch {
	case !served(at) || a.asked:
	case a.HTTP == "":
		a.HTTP, a.trusted = at, trusted
		t.next = append(t.next, a)
		t.of++
	case trusted && !a.trusted:
		a.HTTP, a.trusted = at, true
	}
	a.lost, a.left = a.lost && lost != "", a.left && lost == lease.Departed
	return a.ID
}

// These constants limit how much memory invented answers can use.
const (
	maxPlaces = 4   // per member
	maxWord   = 64  // characters of a state, a reason or a cluster name
	maxLost   = 256 // lost members in the view of an agent; a real agent reports no more
)

// short returns at most the first most characters of text. If it shortens the text, it returns a copy, so
// that the whole text can be freed.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%.*s", most, text)
}

// seen records the address at which another agent, whose id is by, sees this agent.
func (a *Agent) seen(n clusterhttp.Member, by lease.NodeID) {
	at := short(n.Addr, lease.MaxAddrBytes)
	if served(n.HTTP) {
		at += " and " + n.HTTP
	}
	i := slices.IndexFunc(a.places, func(p place) bool { return p.at == at })
	switch {
	case i >= 0:
		a.places[i].n++
	case len(a.places) < maxPlaces:
		a.places = append(a.places, place{at, by, 1})
	}
}

// served reports whether at can be the URL of an agent: a scheme, a host and a port.
func served(at string) bool {
	if len(at) > len("https://")+lease.MaxAddrBytes {
		return false
	}
	u, err := url.Parse(at)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Port() != "" &&
		at == (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// reason explains in one line why an agent did not answer.
func reason(ctx context.Context, s *session.Session, err error) string {
	if ctx.Err() != nil {
		return "no answer before time ran out"
	}
	line, _, _ := strings.Cut(s.Explain(err).Error(), "\n")
	return fmt.Sprintf("%.200s", line)
}

// compare fills in the fields that depend on all answers.
func compare(agents []Agent) {
	live := make(map[lease.NodeID]bool)
	for _, a := range agents {
		if a.View == nil {
			continue
		}
		live[a.ID] = true
		for _, id := range a.View.Sees {
			live[id] = true
		}
	}
	for _, a := range agents {
		if a.View == nil {
			continue
		}
		a.View.Lacks = []lease.NodeID{}
		a.View.InSync = a.View.digest == agents[0].View.digest
		for id := range live {
			if _, sees := slices.BinarySearch(a.View.Sees, id); !sees {
				a.View.Lacks = append(a.View.Lacks, id)
			}
		}
		slices.Sort(a.View.Lacks)
	}
}
