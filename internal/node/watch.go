package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Watch is a node to which the shell holds a stream, so that this node learns of the end
// of the other process at once.
type Watch struct {
	Node lease.Handle
	Addr string
}

// watch is what this node watches.
type watch struct {
	nodes   []Watch // as the shell knows them
	changes uint64  // of the live set, when the nodes were chosen
	phase   Phase   // likewise
}

// watchOthers has the shell watch the right nodes. A node that joins watches none: its live
// set is still far from complete. O(1) unless the live set has changed.
func (n *Node) watchOthers() {
	w := &n.watch
	if w.changes == n.stats.ViewChanges && w.phase == n.life.phase {
		return
	}
	w.changes, w.phase = n.stats.ViewChanges, n.life.phase
	nodes := []Watch{}
	if w.phase != Joining && w.phase != Over {
		for _, h := range n.set.Watched() {
			if addr := n.set.AddrOf(h); addr != "" {
				nodes = append(nodes, Watch{h, addr})
			}
		}
	}
	if !slices.Equal(nodes, w.nodes) {
		w.nodes, n.out.Watch = nodes, nodes
	}
}

// StreamEnded reports that the stream to a watched node ended, and that the node could not
// be reached again.
func (n *Node) StreamEnded(_ time.Time, _ lease.Handle, _ lease.Evidence) {}
