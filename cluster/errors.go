package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// These errors are for use with errors.Is.
var (
	ErrNotReady = errors.New("cluster: not ready: this node has not computed a table yet; wait for Ready")
	ErrClosed   = errors.New("cluster: agent is closed")

	// Lookups return ErrNoMembers while no member can own anything. The error that wraps it says how many
	// members are cordoned, flapping, draining, settling or of weight 0, and what to do.
	ErrNoMembers = errors.New("cluster: no member can own anything")

	// Lookups in a [Scope] return ErrEmptyScope while no member of the scope can own anything. The error that
	// wraps it says how many members match.
	ErrEmptyScope = errors.New("no member of the scope can own anything")

	// [Agent.Scope] returns ErrScopeExists, ErrManyScopes and ErrScopeStrategy.
	ErrScopeExists = errors.New("the agent already has a scope with this name: use the first one, which Agent.Scopes has, or choose another name")
	ErrManyScopes  = fmt.Errorf("the agent already has %d scopes, which is the maximum: make a scope for each role or zone, not for each tenant or room",
		MaxScopes)
	ErrScopeStrategy = errors.New("the agent's strategy remembers owners, which scopes do not support: use a strategy without a memory, such as Rendezvous or Bounded")

	// DrainAt and LeaveAt return ErrAhead if the time is more than MaxAhead in the future.
	ErrAhead = errors.New("the time is too far ahead")

	// Calls that need the current list of members return ErrFenced while the node is fenced, which means that
	// its own lease expired. Lookups do not return ErrFenced. See Snapshot.Fenced.
	ErrFenced = errors.New("cluster: fenced: this node's own lease expired, because the process was paused or could not send; it joins again by itself: try again in a second")

	// ErrStalled means that the agent's loop did not carry out a call within LeaseTTL. The loop may still
	// carry out the call later.
	ErrStalled = errors.New("cluster: the agent's loop is stuck: a Strategy does not return, perhaps because it calls the agent, or the process gets no CPU")

	// [Agent.Cordon] returns ErrNotMember if the ID is not a member, ErrLastCandidate if no other member
	// could own anything, and ErrCordons if too many nodes are already cordoned.
	ErrNotMember     = node.ErrNotMember
	ErrLastCandidate = node.ErrLastCandidate
	ErrCordons       = lease.ErrCordons

	// ErrKey and ErrCluster mean that a seed refused this node because the gossip key or the cluster name
	// differs. Start wraps these errors.
	ErrKey     = gossip.ErrKey
	ErrCluster = gossip.ErrCluster

	// SetLoad and ComputeLoad return ErrLoadComputed while another part of the application computes the load.
	ErrLoadComputed = errors.New("cluster: this node's load is computed by another part of the application (affinity.Config.ReportLoad): set it there or by SetLoad, not both")

	// SetUse returns ErrUse if it cannot accept the use of a resource.
	ErrUse = errors.New("cluster: use of resources")

	// SetKeys returns ErrPlain or ErrSealed if the change between plain text and encryption needs an
	// intermediate step.
	ErrPlain  = gossip.ErrPlain
	ErrSealed = gossip.ErrSealed

	// InstallKey, UseKey and RemoveKey return ErrUnknownKey, ErrKeyLacking, ErrKeyInUse and ErrManyKeys.
	ErrUnknownKey = errors.New("cluster: this node has no gossip key with this fingerprint: install it first")
	ErrKeyLacking = errors.New("cluster: live members do not accept this gossip key")
	ErrKeyInUse   = errors.New("cluster: this gossip key is still used to send")
	ErrManyKeys   = fmt.Errorf("cluster: a node can have at most %d gossip keys: remove one first", maxKeys)
)

// SettingsError is the error of Start if a seed has another value for a setting that must be the same in the
// whole cluster.
type SettingsError struct {
	Peer         string // memberlist name of the other node: id#incarnation
	Setting      string
	Ours, Theirs string
}

// Error names the setting and its values on both nodes.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("cluster: setting %s must be the same on all nodes, but it is %s here and %s on %s",
		e.Setting, e.Ours, e.Theirs, e.Peer)
}

// DuplicateIDError is the error of an agent that stopped because a process that started later uses the same
// ID. If both processes continued, both would believe that they own the same partitions.
type DuplicateIDError struct {
	ID    lease.NodeID
	Addr  string // gossip address of this process
	Other string // gossip address of the other process
}

// Error names the addresses of both processes and says what to do.
func (e *DuplicateIDError) Error() string {
	return fmt.Sprintf("cluster: two processes use the node id %q: this process at %s, which stops now, and a process at %s, which started later: "+
		"give each its own id (--id), because otherwise each restart of one process stops the other", e.ID, e.Addr, e.Other)
}

// bar is a reason why members own nothing, and what to do about it.
type bar struct{ why, advice string }

// bars lists all reasons, in the order in which errors name them. The last reason soon ends by itself.
var bars = [...]bar{ //nolint:gochecknoglobals // a table
	{"cordoned", "end a cordon"},
	{"unhealthy", "make the health check of a member pass"},
	{"flapping", "wait until a node is no longer flapping"},
	{"draining", "undrain a member"},
	{"of weight 0", "give a member a weight"},
	{"settling", "wait a few seconds"},
	{"about to own partitions", "try again in a second"},
}

// barOf returns the index in bars of the reason why m owns nothing.
func barOf(m *Member) int {
	switch {
	case m.cordoned:
		return 0
	case m.Unhealthy:
		return 1
	case !m.FlappingUntil.IsZero():
		return 2
	case m.State == lease.Draining:
		return 3
	case m.State == lease.Settling:
		return 5
	case m.Weight == 0:
		return 4
	}
	return 6
}

// barred explains why no member owns anything, and what to do: "2 draining, 1 of weight 0; undrain …".
func barred(members []*Member) string {
	var counts [len(bars)]int
	for _, m := range members {
		counts[barOf(m)]++
	}
	var whys, advice []string
	for i, n := range counts {
		if n > 0 {
			whys = append(whys, fmt.Sprintf("%d %s", n, bars[i].why))
			advice = append(advice, bars[i].advice)
		}
	}
	return fmt.Sprintf("%s; %s, or start another node", strings.Join(whys, ", "), strings.Join(advice, ", "))
}
