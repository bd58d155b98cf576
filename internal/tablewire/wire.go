// Package tablewire defines the messages that an agent sends to its routing clients: first the whole table
// and all members, and then only changes. The agent and the client both import this package, so they do not
// have to import each other.
package tablewire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Update is the change from one State of a routing client to another.
type Update struct {
	Version uint64           `json:"version"` // of the agent's snapshot
	Digest  placement.Digest `json:"digest"`  // digest of the table after the update

	// Stale reports that the agent's own table may be out of date, because the agent is isolated or
	// rejoining.
	Stale bool `json:"stale,omitempty"`

	// Table is the whole table, if set. If Table is set, the update does not need a previous State, and
	// Members contains all members.
	Table   *placement.Export `json:"table,omitempty"`
	Cluster string            `json:"cluster,omitempty"` // cluster of the table; "" if the agent does not report it

	Nodes   []placement.Node `json:"nodes,omitzero"`    // all candidates, if they changed
	Moved   []placement.Move `json:"moved,omitempty"`   // partitions whose owner in the table changed
	Gone    []lease.NodeID   `json:"gone,omitempty"`    // nodes that are no longer live
	Members []Member         `json:"members,omitempty"` // new or changed members

	// Running contains all partitions that still run on a different member than the table specifies.
	Running []Running `json:"running,omitempty"`
}

// Member is a live node without the fields that change with each heartbeat.
type Member struct {
	lease.Profile

	State lease.State `json:"state"`
}

// Equal reports whether all fields of m and o are equal.
func (m *Member) Equal(o *Member) bool { return m.State == o.State && m.Profile.Equal(&o.Profile) }

// Running is a partition and the member that runs it.
type Running struct {
	Partition placement.Partition `json:"partition"`
	Node      lease.NodeID        `json:"node"`
}

// State is what an agent knows, and what a routing client knows after an Update. A State is immutable.
type State struct {
	Cluster string // "" if unknown
	Version uint64
	Table   *placement.Table // nil = the agent has not had a table yet
	Stale   bool
	Members []*Member // sorted by id
	Running []Running // sorted by partition
}

// Diff returns the update that a routing client needs to get from one state of an agent to a later state. If
// from is nil, the update contains the whole table. Diff assumes that the number of partitions and the
// strategy of an agent never change. It takes O(partitions + members) time.
func Diff(from, to *State) *Update {
	u := &Update{Version: to.Version, Digest: to.Table.Digest(), Stale: to.Stale, Running: to.Running}
	var old []*Member
	if from == nil {
		e := to.Table.Export(to.Version)
		u.Table, u.Cluster = &e, to.Cluster
	} else {
		old = from.Members
		if from.Table != to.Table {
			u.Moved = placement.Moves(from.Table, to.Table)
			if !slices.EqualFunc(from.Table.Nodes(), to.Table.Nodes(), placement.Node.Equal) {
				u.Nodes = append([]placement.Node{}, to.Table.Nodes()...)
			}
		}
	}
	for m, o := range pairs(to.Members, old) {
		switch {
		case m == nil:
			u.Gone = append(u.Gone, o.ID)
		case o == nil || !m.Equal(o):
			u.Members = append(u.Members, *m)
		}
	}
	return u
}

// pairs yields pairs of members with the same id from two sorted lists. If one list does not contain the id,
// the corresponding member is nil.
func pairs(a, b []*Member) func(yield func(a, b *Member) bool) {
	return func(yield func(a, b *Member) bool) {
		for len(a) > 0 || len(b) > 0 {
			order := 0
			switch {
			case len(a) == 0:
				order = 1
			case len(b) == 0:
				order = -1
			default:
				order = cmp.Compare(a[0].ID, b[0].ID)
			}
			var x, y *Member
			if order <= 0 {
				x, a = a[0], a[1:]
			}
			if order >= 0 {
				y, b = b[0], b[1:]
			}
			if !yield(x, y) {
				return
			}
		}
	}
}

// errNoStart is the error of an update that needs a previous state when there is none.
var errNoStart = errors.New("tablewire: the first update has no table")

// Apply returns the state after u. Updates may come from an untrusted source, so Apply validates u, and its
// error describes the problem. It takes O(partitions + members) time.
func (u *Update) Apply(from *State) (*State, error) {
	var e placement.Export
	var old []*Member
	name := u.Cluster
	switch {
	case u.Table != nil:
		e = *u.Table
	case from == nil:
		return nil, errNoStart
	default:
		e, old, name = from.Table.Export(0), from.Members, from.Cluster
		if u.Nodes != nil {
			e.Nodes = u.Nodes
		}
		for _, m := range u.Moved {
			if uint64(m.Partition) >= uint64(len(e.Owners)) {
				return nil, fmt.Errorf("tablewire: partition %d moves, of %d", m.Partition, len(e.Owners))
			}
			e.Owners[m.Partition] = m.To
		}
		if u.Nodes == nil && len(u.Moved) == 0 && u.Digest == from.Table.Digest() {
			return u.state(name, from.Table, old), nil
		}
	}
	e.Digest = u.Digest
	table, err := e.Table()
	if err != nil {
		return nil, fmt.Errorf("tablewire: %w", err)
	}
	return u.state(name, table, old), nil
}

// state returns the state after u, with the given table and the members as changed by u.
func (u *Update) state(name string, table *placement.Table, old []*Member) *State {
	members := old
	if len(u.Gone) > 0 || len(u.Members) > 0 {
		byID := make(map[lease.NodeID]*Member, len(old)+len(u.Members))
		for _, m := range old {
			byID[m.ID] = m
		}
		for _, id := range u.Gone {
			delete(byID, id)
		}
		for i := range u.Members {
			byID[u.Members[i].ID] = &u.Members[i]
		}
		members = slices.SortedFunc(maps.Values(byID), func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	}
	return &State{Cluster: name, Version: u.Version, Table: table, Stale: u.Stale, Members: members, Running: u.Running}
}
