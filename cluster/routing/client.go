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

// ErrNotReady and ErrNoMembers are errors of Place.
var (
	ErrNotReady  = errors.New("routing: not ready: no agent has sent a table yet; wait for Ready")
	ErrNoMembers = errors.New("routing: no member can own anything: all are draining or settling, or have weight 0")
)

// Member is what a Client knows about a live node. Don't modify a Member, because all readers share it.
type Member struct {
	lease.Profile

	State lease.State
}

// errEmpty returns the error of lookups for a key that has no owner.
func (c Config) errEmpty() error {
	if c.Scope == "" {
		return ErrNoMembers
	}
	return fmt.Errorf("%w, or no member belongs to the scope %q", ErrNoMembers, c.Scope)
}

// view is the table and the members at one point in time. A view is immutable.
type view struct {
	*tablewire.State

	members []*Member // sorted by ID
	owners  []*Member // by index into the nodes of the table
	runners map[placement.Partition]*Member
	state   *events.State
	why     error // error of lookups for a key that has no owner
}

// after returns the view of state s, which follows v. A candidate that is no longer a member keeps its fields
// until the next table.
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

// candidates returns the members with these IDs, which must be candidates of the table.
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

// Client keeps a copy of a cluster's table. All its methods are safe for concurrent use, before and after
// Close.
type Client struct {
	cfg     Config
	own     *http.Transport // nil if the caller has set Config.HTTP
	empty   error           // error of lookups for a key that has no owner
	started time.Time

	now     atomic.Pointer[view]
	current atomic.Pointer[stream] // the stream that the Client follows; nil means none
	heard   atomic.Int64           // when the agent last sent something, in ns since the start
	trouble atomic.Pointer[error]  // why the Client follows no agent
	warned  atomic.Int64           // when a warning about a room's stream was last logged, in ns since the start
	feed    events.Feed
	ready   chan struct{}

	stop context.CancelFunc
	wait sync.WaitGroup
}

// Place returns the member that owns key. Don't modify the member. During a handoff, the owner is the member
// that still runs the partition. Place takes no lock and allocates nothing. Place returns ErrNotReady before
// Ready is closed, and ErrNoMembers if no member can own anything.
func (c *Client) Place(key string) (*Member, error) {
	v := c.now.Load()
	if m := v.ownerOf(placement.Of(key, v.Table.Partitions())); m != nil {
		return m, nil
	}
	return nil, v.why
}

// OwnerOf returns the owner of p, and false if p has no owner.
func (c *Client) OwnerOf(p placement.Partition) (*Member, bool) {
	m := c.now.Load().ownerOf(p)
	return m, m != nil
}

// Owners returns the n best members for key, all different and the best first: the owner that the table
// names, then the member that would own key without the owner, and so on. Owners allocates its result. If
// this program does not have the cluster's strategy, Owners only returns the owner.
func (c *Client) Owners(key string, n int) []*Member {
	v := c.now.Load()
	var few [3]int // avoids an allocation for the usual n
	ranked := v.Table.AppendRank(few[:0], placement.Of(key, v.Table.Partitions()), n)
	members := make([]*Member, len(ranked))
	for at, i := range ranked {
		members[at] = v.owners[i]
	}
	return members
}

// OwnersNear returns the same members as Owners, but lists the members in zone first. Use OwnersNear for
// readers that can read any of n replicas.
func (c *Client) OwnersNear(key string, n int, zone string) []*Member {
	v := c.now.Load()
	return v.candidates(v.Table.RankNear(placement.Of(key, v.Table.Partitions()), n, zone))
}

// Subset returns n members for a tenant. See placement.Table.Subset.
func (c *Client) Subset(tenant string, n int) []*Member {
	v := c.now.Load()
	return v.candidates(v.Table.Subset(tenant, n))
}

// Partition returns the partition of key, or 0 until Ready is closed.
func (c *Client) Partition(key string) placement.Partition {
	return placement.Of(key, c.now.Load().Table.Partitions())
}

// Members returns the live members, sorted by ID. The slice is shared and must not be modified.
func (c *Client) Members() []*Member { return c.now.Load().members }

// Member returns the live member with this ID, and false if no live member has it. The lookup costs O(log
// members).
func (c *Client) Member(id lease.NodeID) (*Member, bool) { return c.now.Load().member(id) }

// Table returns the table, which is immutable, or nil until Ready is closed. The table does not show which
// partitions still run on another member during a handoff. Use OwnerOf to find the member that still runs a
// partition.
func (c *Client) Table() *placement.Table { return c.now.Load().Table }

// Ready returns a channel that is closed when the first table has arrived.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Watch returns the changes of owners and members; see events.Watch. Acquired and Released of a batch are
// always empty, because a routing client owns nothing. Changes that happen during the loop body, or while the
// Client switches to another agent, are merged. The sequence ends when ctx ends or the Client is closed.
func (c *Client) Watch(ctx context.Context) iter.Seq[events.Batch] {
	return events.Watch(ctx, &c.feed)
}

// Subscribe is like Watch, for select loops; see events.Subscribe.
func (c *Client) Subscribe(ctx context.Context) <-chan events.Batch {
	return events.Subscribe(ctx, &c.feed)
}

// Age returns how long ago an agent last confirmed the table. If no agent has sent a table yet, Age returns
// the time since the start of the Client.
func (c *Client) Age() time.Duration {
	return time.Since(c.started) - time.Duration(c.heard.Load())
}

// Status is the current state of a Client's connection to its agents.
type Status struct {
	Agent string        // the agent that the Client follows, as in Config.Agents but without a password; "" if none
	Age   time.Duration // age of the table
	Stale bool          // the agent's own table may be outdated, and no other agent has answered
	Err   error         // why the Client follows no agent, or why other agents failed
}

// Status returns the current state of the Client, for people and for alerts.
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

// Close stops the Client and waits until its goroutines have returned. Lookups continue to use the last
// table. You can call Close several times.
func (c *Client) Close() error {
	c.stop()
	c.wait.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}
