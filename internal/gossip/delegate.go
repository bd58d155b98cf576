package gossip

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// delegate receives memberlist's callbacks. memberlist holds its node lock while it calls the alive, merge
// and event delegates, so these callbacks must not block or call memberlist.
type delegate struct {
	node   *Node
	meta   func() []byte
	accept func(name string, meta []byte) error
	ours   func(meta []byte) bool
	self   string
	to     Receiver
	names  firewall.Names
}

var errOther = errors.New("gossip: a node of another cluster")

func (d *delegate) NodeMeta(int) []byte { return d.meta() }

// NotifyMsg copies the message, because memberlist may reuse its memory.
func (d *delegate) NotifyMsg(b []byte) { d.to.Receive(slices.Clone(b)) }

// GetBroadcasts returns nothing, because gossip messages are sent directly. After a mass join, memberlist
// would send its own broadcasts first, which would delay the gossip messages by a minute.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

func (d *delegate) LocalState(bool) []byte { return d.to.State() }

func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.to.Merge(b) }

// NotifyAlive keeps nodes with different settings and nodes of other clusters out of memberlist's list. It
// also limits how many names an unauthenticated sender can add.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self {
		return nil
	}
	if err := firewall.Check(n); err != nil {
		return err
	}
	if err := d.accept(n.Name, n.Meta); err != nil {
		return err
	}
	if d.ours != nil && !d.ours(n.Meta) {
		return errOther
	}
	return d.names.Admit(n.Name, time.Now())
}

// NotifyMerge runs on both sides of a join. It rejects the join if the settings differ.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, p := range peers {
		if p.State == memberlist.StateDead || p.State == memberlist.StateLeft || p.Name == d.self {
			continue // its settings are outdated
		}
		if err := d.accept(p.Name, p.Meta); err != nil {
			d.node.rejected.Store(&err)
			return err
		}
	}
	return nil
}

func (d *delegate) NotifyJoin(n *memberlist.Node)  { d.names.Joined(n.Name) }
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.names.Left(n.Name) }
func (d *delegate) NotifyUpdate(*memberlist.Node)  {}
