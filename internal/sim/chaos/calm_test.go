package chaos

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// calm records when there was last a fault that may end a lease.
type calm struct {
	network time.Duration
	cut     time.Duration            // of any link
	node    map[string]time.Duration // by id
	link    map[link]time.Duration
}

// link is the connection between two nodes, with the smaller id first.
type link struct{ a, b string }

func linkOf(a, b string) link { return link{min(a, b), max(a, b)} }

const (
	calmAfter = 2 * ttl
	calmLoss  = 0.2             // of packets
	calmClock = 2 * time.Second // ahead of the true time or behind; MaxSkew is 5 s
)

// noteTrouble records which of these faults exist now.
func (w *world) noteTrouble() {
	running, right := w.countRunning()
	for id, h := range w.hosts {
		if w.stopped(id) || h.lossy || !h.clockRight() {
			w.calm.node[id] = w.Elapsed()
		}
	}
	for id, p := range w.now {
		// Nodes that were suspended together fence themselves when they meet others.
		f := p.View().Stats.Fences
		if f > p.fences && p.woke > 0 {
			w.calm.node[id] = w.Elapsed()
		}
		p.fences = f
	}
	for l := range w.cuts {
		w.calm.link[l], w.calm.cut = w.Elapsed(), w.Elapsed()
	}
	// A single link that is cut only affects its two nodes, because one node cannot prove that another has ended. If
	// most peers do not answer, news spreads slowly. If half of the clocks are wrong, the nodes with right clocks may
	// be the rejected ones.
	if len(w.cuts) > 1 || w.Loss() > calmLoss || 2*running < len(w.hosts) || 2*right <= running {
		w.calm.network = w.Elapsed()
	}
}

// countRunning returns how many nodes run, and how many of them have the right time and can send it to others.
func (w *world) countRunning() (all, right int) {
	for id, h := range w.hosts {
		if !w.acts(id) {
			continue
		}
		all++
		if h.clockRight() && !h.lossy {
			right++
		}
	}
	return all, right
}

// isCutOff reports whether a link of a node was cut recently. The node may then wait for more leases to expire.
func (w *world) isCutOff(id string) bool {
	for l, at := range w.calm.link {
		if (l.a == id || l.b == id) && w.Elapsed()-at <= calmAfter {
			return true
		}
	}
	return false
}

// outlived returns how much longer than another member the last of a node's members ran. It is 0 while one of them
// runs. When nobody is left, the node may be cut off itself, and waits for all leases.
func (w *world) outlived(p, ended *process) time.Duration {
	members, last := p.View().Live.Members, ended.end
	for i := range members {
		m := &members[i]
		other := w.all[lease.Incarnation{Node: m.ID, Number: m.Incarnation}]
		switch {
		case string(m.ID) == p.ID:
		case other == nil || other.end == 0:
			return 0
		default:
			last = max(last, other.end)
		}
	}
	return last - ended.end
}

func (h *host) clockRight() bool { return h.clock.Abs() <= calmClock }

// isCalm reports whether neither of two nodes had a reason to drop the other.
func (w *world) isCalm(a, b string) bool {
	last := max(w.calm.network, w.calm.node[a], w.calm.node[b], w.calm.link[linkOf(a, b)])
	return w.Elapsed()-last > calmAfter
}
