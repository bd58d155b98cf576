package affinity

import (
	"context"
	"iter"
	"slices"

	"github.com/roost-cluster/roost/internal/latest"
	"github.com/roost-cluster/roost/lease"
)

// Pressure tells how full a node is with its rooms, in units of load (see
// Config.Cost), and which of them weigh most. A room that grows after it was
// pinned is never moved by itself: somebody has to look at this and move one.
type Pressure struct {
	Node     lease.NodeID `json:"node"`
	Load     int64        `json:"load"`     // units
	Ceiling  int64        `json:"ceiling"`  // units up to which the node is given new rooms
	Capacity int64        `json:"capacity"` // units that it can carry
	Over     bool         `json:"over"`     // Load is above Ceiling

	// Heaviest has the rooms of most units, the heaviest first. Readers share it:
	// it must not be changed.
	Heaviest []RoomLoad `json:"heaviest"`
}

// RoomLoad is what one room costs its node.
type RoomLoad struct {
	Room  string `json:"room"`
	Size  int    `json:"size"`  // participants
	Units int64  `json:"units"` // of load
}

func (p *Pressure) equal(o *Pressure) bool {
	return p.Node == o.Node && p.Load == o.Load && p.Ceiling == o.Ceiling && p.Capacity == o.Capacity &&
		p.Over == o.Over && slices.Equal(p.Heaviest, o.Heaviest)
}

// pressures publishes one node's pressure. Readers get the newest value and skip
// the values in between. The zero value is ready to use, from any goroutine.
type pressures struct{ latest.Value[*Pressure] }

// watch yields the newest value as soon as there is one, then the newest value each
// time that it differs from the one yielded before. It ends with ctx or with Close,
// and needs no goroutine. Each range over it starts again.
func (f *pressures) watch(ctx context.Context) iter.Seq[Pressure] {
	return func(yield func(Pressure) bool) {
		var last *Pressure
		for ctx.Err() == nil {
			newest, replaced := f.Get()
			if p := *newest; p != nil && (last == nil || !last.equal(p)) {
				if last = p; !yield(*last) {
					return
				}
			}
			if replaced == nil {
				return
			}
			select {
			case <-replaced:
			case <-ctx.Done():
			}
		}
	}
}
