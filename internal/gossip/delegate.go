package gossip

import (
	"errors"
	"slices"

	"github.com/hashicorp/memberlist"
)

// delegate receives memberlist's callbacks. Those of the alive, merge and event
// interfaces run under its node lock: they neither wait nor call back.
type delegate struct {
	node   *Node
	meta   []byte
	accept func(name string, meta []byte) error
	self   string
	to     Receiver
	names  int // members that memberlist holds for alive; guarded by its node lock
}

var errFull = errors.New("gossip: too many members")

func (d *delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg may be handed memory that memberlist uses again, so it copies.
func (d *delegate) NotifyMsg(b []byte) { d.to.Receive(slices.Clone(b)) }

// GetBroadcasts returns nothing: digests are sent directly, because memberlist
// puts its own broadcasts first and starves ours for a minute after a mass join.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

func (d *delegate) LocalState(bool) []byte { return d.to.State() }

func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.to.Merge(b) }

// NotifyAlive keeps nodes with other settings out of memberlist's list.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self {
		return nil
	}
	if d.names >= maxMembers {
		return errFull
	}
	return d.accept(n.Name, n.Meta)
}

// NotifyMerge runs on both sides of a join and ends it if settings differ.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, p := range peers {
		if p.State == memberlist.StateDead || p.State == memberlist.StateLeft || p.Name == d.self {
			continue // its settings are of the past
		}
		if err := d.accept(p.Name, p.Meta); err != nil {
			d.node.refused.Store(&err)
			return err
		}
	}
	return nil
}

func (d *delegate) NotifyJoin(*memberlist.Node)   { d.names++ }
func (d *delegate) NotifyLeave(*memberlist.Node)  { d.names-- }
func (d *delegate) NotifyUpdate(*memberlist.Node) {}
