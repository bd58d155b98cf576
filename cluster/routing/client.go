package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/tablewire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Errors of Place.
var (
	ErrNotReady  = errors.New("routing: not ready: no agent has sent a table yet; wait for Ready")
	ErrNoMembers = errors.New("routing: no member can own anything: all are draining, settling or of weight 0")
)

// Member is what a Client knows of one live node. All readers share one Member, which must not be
// modified.
type Member struct {
	lease.Profile

	State lease.State
}

// errEmpty returns why a key has no owner.
func (c Config) errEmpty() error {
	if c.Scope == "" {
		return ErrNoMembers
	}
	return fmt.Errorf("%w, or none belongs to the scope %q", ErrNoMembers, c.Scope)
}

// view is the table and the members at one moment. It is immutable.
type view struct {
	*tablewire.State

	members []*Member // sorted by id
	owners  []*Member // by index into the nodes of the table
	runners map[placement.Partition]*Member
	state   *events.State
	why     error // for a key without owner
}

// after returns the view of a state. A candidate that has gone keeps its fields until the next table.
func (v *view) after(s *tablewire.State, empty error) *view {
	next := &view{State: s, members: make([]*Member, len(s.Members)), why: empty}
	live := make([]lease.Incarnation, len(s.Members))
	for i, m := range s.Members {
		next.members[i] = (*Member)(m)
		live[i] = lease.Incarnation{Node: m.ID, Number: m.Incarnation}
	}
	nodes := s.Table.Nodes()
	next.owners = make([]*Member, len(nodes))
	for i, n := range nodes {
		switch m, ok := next.member(n.ID); {
		case ok:
			next.owners[i] = m
		case v.owner(n.ID) != nil:
			next.owners[i] = v.owner(n.ID)
		default:
			next.owners[i] = &Member{
				Profile: lease.Profile{ID: n.ID, Zone: n.Zone, Weight: n.Weight, Capacity: n.Capacity, Labels: n.Labels},
				State:   lease.Left,
			}
		}
	}
	if len(s.Running) > 0 {
		next.runners = make(map[placement.Partition]*Member, len(s.Running))
	}
	for _, r := range s.Running {
		if m, ok := next.member(r.Node); ok {
			next.runners[r.Partition] = m
		}
	}
	next.state = events.Next(v.state, "", s.Table, live, false)
	return next
}

func (v *view) member(id lease.NodeID) (*Member, bool) {
	m := find(v.members, id)
	return m, m != nil
}

// owner returns a candidate of the table, or nil.
func (v *view) owner(id lease.NodeID) *Member { return find(v.owners, id) }

func find(sorted []*Member, id lease.NodeID) *Member {
	i, ok := slices.BinarySearchFunc(sorted, id, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return sorted[i]
}

// candidates returns candidates of the table.
func (v *view) candidates(ids []lease.NodeID) []*Member {
	members := make([]*Member, len(ids))
	for i, id := range ids {
		members[i] = v.owner(id)
	}
	return members
}

func (v *view) ownerOf(p placement.Partition) *Member {
	if len(v.runners) > 0 {
		if m := v.runners[p]; m != nil {
			return m
		}
	}
	if i := v.Table.OwnerIndex(p); i >= 0 {
		return v.owners[i]
	}
	return nil
}

// Client has a copy of a cluster's table. All its methods may be called from any goroutine, before
// and after Close.
type Client struct {
	cfg     Config
	own     *http.Transport // nil: the caller's
	empty   error           // why a key has no owner
	started time.Time

	now     atomic.Pointer[view]
	current atomic.Pointer[stream] // which is followed; nil = none
	heard   atomic.Int64           // when it last said something, in ns since the start
	trouble atomic.Pointer[error]  // why none is followed
	warned  atomic.Int64           // when a stream of a room was the subject of a warning, in ns since the start
	feed    events.Feed
	ready   chan struct{}

	stop context.CancelFunc
	wait sync.WaitGroup
}

// Place returns the member that owns key, which must not be modified. With handoff that is the
// member that runs the partition, until the next owner does. Place takes no lock and allocates nothing.
// It fails with ErrNotReady or ErrNoMembers.
func (c *Client) Place(key string) (*Member, error) {
	v := c.now.Load()
	if m := v.ownerOf(placement.Of(key, v.Table.Partitions())); m != nil {
		return m, nil
	}
	return nil, v.why
}

// OwnerOf returns the owner of p, and false if it has none.
func (c *Client) OwnerOf(p placement.Partition) (*Member, bool) {
	m := c.now.Load().ownerOf(p)
	return m, m != nil
}

// Owners returns the n best members for key, distinct and best first: the owner by the table, then the member
// that would own key without it, and so on. It allocates its result. For a strategy that this
// binary does not have, it returns the owner alone.
func (c *Client) Owners(key string, n int) []*Member {
	v := c.now.Load()
	var few [3]int // the usual number, without an allocation
	ranked := v.Table.AppendRank(few[:0], placement.Of(key, v.Table.Partitions()), n)
	members := make([]*Member, len(ranked))
	for at, i := range ranked {
		members[at] = v.owners[i]
	}
	return members
}

// OwnersNear returns the members of Owners, those of a zone first: for readers that take any of n replicas.
func (c *Client) OwnersNear(key string, n int, zone string) []*Member {
	v := c.now.Load()
	return v.candidates(v.Table.RankNear(placement.Of(key, v.Table.Partitions()), n, zone))
}

// Subset returns the n members of a tenant; see placement.Table.Subset.
func (c *Client) Subset(tenant string, n int) []*Member {
	v := c.now.Load()
	return v.candidates(v.Table.Subset(tenant, n))
}

// Partition returns the partition of key, and 0 before Ready.
func (c *Client) Partition(key string) placement.Partition {
	return placement.Of(key, c.now.Load().Table.Partitions())
}

// Members returns the live members, sorted by id. The slice is shared and must not be modified.
func (c *Client) Members() []*Member { return c.now.Load().members }

// Member returns the live member of that id, and false if there is none: O(log members).
func (c *Client) Member(id lease.NodeID) (*Member, bool) { return c.now.Load().member(id) }

// Table returns the table, which is immutable; nil before Ready. It does not show which partitions run on
// another member for the time of a handoff; OwnerOf does.
func (c *Client) Table() *placement.Table { return c.now.Load().Table }

// Ready is closed when the first table has arrived.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Watch returns the changes of owners and members; see events.Watch. A batch has nothing that the
// routing client itself owns. Changes during the loop body merge, and so do those during a change of
// the agent. The sequence ends with ctx or the Client.
func (c *Client) Watch(ctx context.Context) iter.Seq[events.Batch] {
	return events.Watch(ctx, &c.feed)
}

// Subscribe is Watch for select loops; see events.Subscribe.
func (c *Client) Subscribe(ctx context.Context) <-chan events.Batch {
	return events.Subscribe(ctx, &c.feed)
}

// Age returns how long ago an agent last confirmed the table, or how long ago the Client was started
// if none has sent one.
func (c *Client) Age() time.Duration {
	return time.Since(c.started) - time.Duration(c.heard.Load())
}

// Status is how a Client is doing.
type Status struct {
	Agent string        // which is followed, as in Config.Agents but for a password; "" = none at present
	Age   time.Duration // of the table
	Stale bool          // the agent's own table may be out of date, and no other agent answers
	Err   error         // why no agent is followed, or why the others are not
}

// Status returns how the Client is doing, for people and for alerts.
func (c *Client) Status() Status {
	s := Status{Age: c.Age(), Stale: c.now.Load().Stale}
	if followed := c.current.Load(); followed != nil {
		s.Agent = followed.name
	}
	if err := c.trouble.Load(); err != nil {
		s.Err = *err
	}
	return s
}

// Close ends the Client, and waits until its goroutines have ended. Lookups go on with the last
// table. Close may be called again.
func (c *Client) Close() error {
	c.stop()
	c.wait.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}
