package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/handover"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// news is what a node sends to all members with hand-over: that it runs partitions that they
// may expect on another node. Look-ups depend on it, so each news is sent twice; the bound
// of a hand-over ends what a node believes that has received neither.
type news struct {
	fresh      []placement.Partition
	partitions []placement.Partition // that are sent now
	to         []lease.Handle        // still, in this round
	rounds     int                   // that follow
}

func (s *news) add(p placement.Partition) { s.fresh = append(s.fresh, p) }

// idle reports whether news need not wait for the next turn of gossip.
func (s *news) idle() bool { return len(s.to) == 0 && s.rounds == 0 && len(s.fresh) > 0 }

// spreadNews sends a part of the news, so that a thousand packets do not leave at once.
func (n *Node) spreadNews(now time.Time) {
	h := &n.handing
	s := &h.news
	if len(s.to) == 0 {
		switch {
		case len(s.fresh) > 0:
			s.partitions, s.fresh, s.rounds = append(s.partitions, s.fresh...), nil, 1
		case s.rounds > 0:
			s.rounds--
		default:
			s.partitions = nil
			return
		}
		running := h.kernel.Running()
		s.partitions = slices.DeleteFunc(s.partitions, func(p placement.Partition) bool {
			_, still := slices.BinarySearch(running, p)
			return !still
		})
		s.to = h.others(n.set.Handle())
	}
	part := s.to[:min(maxBurst, len(s.to))]
	s.to = s.to[len(part):]
	for _, m := range part {
		n.sendHandover(now, m, handover.Answer{To: m, Runs: s.partitions}.Encode())
	}
}
