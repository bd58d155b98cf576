package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// MaxScopes is how many scopes an agent can have. The number is limited because the agent's loop spends some
// time on each scope with each snapshot.
const MaxScopes = 64

// MaxScopeName is the maximum length of a scope's name in bytes.
const MaxScopeName = 64

// Scope is a ring over some of the members, such as the members of a role, a service or a zone. Each scope
// has its own owners and its own events, but uses the partitions, the strategy and the leases of the agent.
// All methods are safe for concurrent use.
type Scope struct {
	agent *Agent
	name  string
	match func(*Member) bool

	snap latest.Value[Snapshot]
	feed events.Feed

	// Only the loop uses these fields.
	table   *placement.Table    // the last table, kept even if the agent has none
	mayOwn  uint64              // MayOwn of the agent's state from which the scope's state was computed
	nodes   []placement.Node    // reused
	members []lease.Incarnation // reused
	details []events.Detail     // details of members; reused
	problem scopeProblem
}

// scopeProblem is the latest error of match or of the strategy.
type scopeProblem struct {
	err    error  // nil if both work
	stack  string // stack of a panic in match
	retry  time.Time
	logged time.Time
}

// Scope returns a ring over the members for which match returns true. The candidates of the scope are the
// candidates of the agent's table for which match returns true. Members that are draining, cordoned or
// settling or that have weight 0 therefore own nothing, and the scope changes together with the agent's
// table. If match looks at labels, the scope also changes as soon as this node receives new labels. The scope
// exists until the agent stops. HTTP requests (package clusterhttp) select the scope with ?scope=.
//
// match should depend only on rarely changing data that a member announces about itself: Labels, Zone, ID,
// AppVersion. Each node uses its own match function, so nodes agree on owners only if their functions agree.
// Roost does not compare the functions: [Agent.Converged] and [Snapshot.Diverged] only look at the agent's
// table. While a rolling deployment replaces match, nodes can therefore name different owners in this scope,
// and a partition can have two owners or none. To avoid that, let match compare a label and change the label,
// which a member announces to all nodes. If you must change the function, first deploy a second scope with a
// new name on all nodes, and use it only afterwards. Call Scope right after Start, because other nodes assign
// partitions to a matching member even before that member has called Scope.
//
// The agent's loop calls match twice for each member, about ten times a second. match should therefore return
// quickly, and must not wait for the agent. If match panics for a member, the agent logs the panic, and the
// member remains inside or outside the scope as before. While the matching candidates remain the same, the
// scope keeps its table and costs little. After a change, the agent's loop must compute one more table: see
// docs/dev/benchmarks.md.
//
// Config.Handoff does not apply to scopes. The runs of a partition on two nodes can overlap for a moment.
//
// Scope does not wait for Ready: until then, lookups return ErrNotReady. Scope returns ErrScopeExists if the
// agent has a scope with this name, and ErrManyScopes if the agent already has MaxScopes scopes. Scope
// returns ErrScopeStrategy if the Strategy remembers owners, and can also return ErrClosed and ErrStalled.
// Scope also fails if name is not 1 to 64 bytes of UTF-8, if match is nil, or if match or the strategy
// panics.
func (a *Agent) Scope(name string, match func(*Member) bool) (*Scope, error) {
	sc := &Scope{agent: a, name: name, match: match}
	sc.snap.Set(Snapshot{})
	err := sc.check()
	if err == nil {
		var refused error
		if err = a.command(func(now time.Time, _ *node.Node) { refused = a.addScope(sc, now) }); err == nil {
			err = refused
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: scope %.80q: %w", name, err)
	}
	return sc, nil
}

func (sc *Scope) check() error {
	strategy := sc.agent.cfg.Strategy
	switch {
	case sc.name == "":
		return errors.New("the name is empty: give the scope a name, which errors and log lines show")
	case len(sc.name) > MaxScopeName || !utf8.ValidString(sc.name):
		return fmt.Errorf("the name must be UTF-8 and have at most %d bytes, because it is part of URLs and answers", MaxScopeName)
	case sc.match == nil:
		return errors.New("match is nil: pass a function that says which members belong to the scope")
	case placement.Remembers(strategy):
		return fmt.Errorf("strategy %q: %w", strategy.Name(), ErrScopeStrategy)
	}
	return nil
}

// addScope adds a scope. Call it only in the loop.
func (a *Agent) addScope(sc *Scope, now time.Time) error {
	scopes := a.Scopes()
	switch {
	case slices.ContainsFunc(scopes, func(other *Scope) bool { return other.name == sc.name }):
		return ErrScopeExists
	case len(scopes) == MaxScopes:
		return ErrManyScopes
	}
	if err := sc.update(a.snap.Load(), now); err != nil {
		return err
	}
	scopes = append(slices.Clip(scopes), sc)
	a.scopes.Store(&scopes)
	return nil
}

// Scopes returns the scopes of this agent in the order of their creation. The slice is shared and must not be
// modified.
func (a *Agent) Scopes() []*Scope {
	if all := a.scopes.Load(); all != nil {
		return *all
	}
	return nil
}

// Name returns the name of the scope.
func (sc *Scope) Name() string { return sc.name }

// Place returns the scope's owner of key. Don't modify the member. Like [Agent.Place], Place takes no lock
// and allocates nothing. While no member of the scope can own anything, Place returns an error that wraps
// ErrEmptyScope. The other errors of Place are the errors of Agent.Place.
func (sc *Scope) Place(key string) (*Member, error) { return sc.snap.Load().Place(key) }

// OwnerOf returns the scope's owner of p, and false if p has no owner in the scope.
func (sc *Scope) OwnerOf(p placement.Partition) (*Member, bool) { return sc.snap.Load().OwnerOf(p) }

// Owners returns the n best members of the scope for key, all different and the best first. Owners costs as
// much as [Agent.Owners].
func (sc *Scope) Owners(key string, n int) []*Member { return sc.snap.Load().Owners(key, n) }

// IsOwner reports whether this node owns key in the scope and its own lease is still valid, like
// [Agent.IsOwner]. IsOwner returns false while the agent is fenced or isolated, and after the agent has left.
func (sc *Scope) IsOwner(key string) bool { return sc.Owns(sc.agent.Partition(key)) }

// Owns is like IsOwner, for a partition.
func (sc *Scope) Owns(p placement.Partition) bool {
	s := sc.snap.Load()
	return s.owns(p) && s.lease.Holds(time.Since(sc.agent.started))
}

// Owned returns the partitions that this node owns in the scope now, like [Agent.Owned].
func (sc *Scope) Owned() []placement.Partition { return sc.agent.owned(sc.snap.Load()) }

// Members returns the live members that match, sorted by ID, even if they cannot own anything. The slice is
// shared and must not be modified.
func (sc *Scope) Members() []*Member { return sc.snap.Load().Members }

// Snapshot returns the scope at one point in time. The Members, Table and State belong to the scope, and so
// do the results of Place, Owners, Version and Digest. Everything else describes the agent, including InSync,
// Diverged and Converged.
func (sc *Scope) Snapshot() *Snapshot { return sc.snap.Load() }

// Latest returns the Snapshot, and a channel that is closed when a later snapshot replaces it, like
// [Agent.Latest].
func (sc *Scope) Latest() (*Snapshot, <-chan struct{}) { return sc.snap.Get() }

// Watch returns the changes of the scope, like [Agent.Watch]. Batch.Changed contains only members of the
// scope. A member that stops matching is in Left, without a reason. A member that starts to match is in
// Joined. The member is also in Changed when the agent publishes what changed. Version counts the scope's own
// states.
func (sc *Scope) Watch(ctx context.Context) iter.Seq[events.Batch] {
	return events.Watch(ctx, &sc.feed)
}

// Reader returns a reader of the scope's changes, like [Agent.Reader]. Watch and RunOwned are built on it. The caller
// must close it.
func (sc *Scope) Reader(name string) *events.Reader { return sc.feed.Reader(name) }

// RunOwned runs f once for each partition while this node owns the partition in the scope, like
// [Agent.RunOwned] without handoff. [Agent.Leave] also waits for the runs of scopes.
func (sc *Scope) RunOwned(ctx context.Context, f func(context.Context, placement.Partition)) error {
	return events.RunOwned(ctx, &sc.feed, f)
}

// updateScopes updates all scopes to the agent's next snapshot.
func (l *loop) updateScopes(s *Snapshot, now time.Time) {
	for _, sc := range l.agent.Scopes() {
		err := sc.update(s, now)
		if err == nil || now.Sub(sc.problem.logged) < time.Minute {
			continue
		}
		sc.problem.logged = now
		args := []any{"scope", sc.name, "err", err}
		if sc.problem.stack != "" {
			args = append(args, "stack", sc.problem.stack)
		}
		l.log.Log(context.Background(), slog.LevelError, "scope failed; keeping what it knew", args...)
	}
}

// update updates the scope to a snapshot of the agent. If the strategy fails, the scope keeps its members and
// table. If match fails for a member, that member remains inside or outside the scope as before, but the
// scope still drops nodes that drain or leave. The error says what failed.
func (sc *Scope) update(of *Snapshot, now time.Time) error {
	old := sc.snap.Load()
	s := *of
	s.Members, s.Table, s.State, s.owners, s.parting, s.runners = old.Members, nil, old.State, old.owners, nil, nil
	if !now.Before(sc.problem.retry) {
		sc.problem.err, sc.problem.stack = nil, ""
		members, table, err := sc.compute(of)
		if err == nil {
			s.Members, sc.table = members, table
		} else {
			sc.problem.err = err
			sc.problem.retry = now.Add(sc.agent.cfg.HeartbeatInterval) // the problem may be temporary
		}
	}
	if of.Table != nil {
		s.Table, s.owners = sc.table, ownersOf(sc.table, of.owners, old.owners)
		if len(sc.table.Nodes()) == 0 {
			s.why = sc.whyEmpty(s.Members, len(of.Members))
		}
	}
	s.State = sc.follow(old.State, of, s.Members)
	sc.snap.Set(s)
	if s.State != old.State {
		sc.feed.Publish(s.State)
	}
	return sc.problem.err
}

// compute returns the live members that match, and the table of the scope. If the candidates have not
// changed, or if the agent has no table, compute returns the last table of the scope.
func (sc *Scope) compute(of *Snapshot) (members []*Member, table *placement.Table, err error) {
	members = make([]*Member, 0, len(of.Members))
	for _, m := range of.Members {
		if sc.matches(m) {
			members = append(members, m)
		}
	}
	if of.Table == nil {
		return members, sc.table, nil
	}
	sc.nodes = sc.nodes[:0]
	for i, n := range of.Table.Nodes() {
		if sc.matches(of.owners[i]) { // the owner may no longer be live
			sc.nodes = append(sc.nodes, n)
		}
	}
	if sc.table != nil && slices.EqualFunc(sc.table.Nodes(), sc.nodes, placement.Node.Equal) {
		return members, sc.table, nil
	}
	cfg := &sc.agent.cfg
	table, err = placement.Compute(placement.Input{Nodes: sc.nodes, Partitions: cfg.Partitions, Strategy: cfg.Strategy, Base: sc.table})
	return members, table, err
}

// matches calls match. If match panics, the member remains inside or outside the scope as before.
func (sc *Scope) matches(m *Member) (in bool) {
	defer func() {
		if r := recover(); r != nil {
			sc.problem.err, sc.problem.stack = fmt.Errorf("match: panic for member %s: %v", m.ID, r), string(debug.Stack())
			_, in = sc.snap.Load().Member(m.ID)
		}
	}()
	return sc.match(m)
}

// whyEmpty returns why no member of the scope can own anything.
func (sc *Scope) whyEmpty(matching []*Member, live int) error {
	switch {
	case sc.table == nil:
		return fmt.Errorf("cluster: scope %q: %w: it has no table: %w", sc.name, ErrNotReady, sc.problem.err)
	case len(matching) == 0:
		return fmt.Errorf("cluster: scope %q: %w: none of the %d live members matches; start a node that matches, or check what match compares, such as labels",
			sc.name, ErrEmptyScope, live)
	}
	return fmt.Errorf("cluster: scope %q: %w: %d of the %d live members match: %s", sc.name, ErrEmptyScope,
		len(matching), live, barred(matching))
}

// follow returns the scope's next state after prev. If nothing has changed, it returns prev itself.
func (sc *Scope) follow(prev *events.State, of *Snapshot, matching []*Member) *events.State {
	if of.State == nil {
		return prev
	}
	mayOwn := of.State.MayOwn
	members, details := sc.follows(prev, of, matching)
	if prev != nil {
		if prev.Table == sc.table && sc.mayOwn == mayOwn && slices.Equal(prev.Members, members) && slices.Equal(prev.Details, details) {
			return prev
		}
		if sc.mayOwn != mayOwn && sc.mayOwn != 0 && mayOwn != 0 {
			prev = events.Next(prev, sc.agent.self, prev.Table, prev.Members, false) // in between, the node lost everything and regained it
		}
	}
	s := events.Next(prev, sc.agent.self, sc.table, slices.Clone(members), mayOwn != 0)
	s.Details, s.Ended = slices.Clone(details), of.State.Ended
	sc.mayOwn = mayOwn
	return s
}

// follows returns the members of the agent's state that match, and the details of each member. The agent's
// state keeps members that are no longer live until it has published their end, and the scope keeps them just
// as long.
func (sc *Scope) follows(prev *events.State, of *Snapshot, matching []*Member) ([]lease.Incarnation, []events.Detail) {
	sc.members, sc.details = sc.members[:0], sc.details[:0]
	live := of.Members
	for at, i := range of.State.Members {
		in := false
		if m := next(&live, i.Node); m != nil && m.Incarnation == i.Number {
			in = next(&matching, i.Node) != nil
		} else if prev != nil {
			_, in = slices.BinarySearchFunc(prev.Members, i, lease.Incarnation.Compare)
		}
		if in {
			sc.members, sc.details = append(sc.members, i), append(sc.details, of.State.Details[at])
		}
	}
	return sc.members, sc.details
}
