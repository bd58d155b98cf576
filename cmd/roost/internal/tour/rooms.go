package tour

import (
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// With these sizes, one node has no headroom for the big room, and every other node has enough. The sizes
// also work while an agent counts newly claimed rooms twice: as reserved, and in the load that their node
// reports.
const (
	roomCount    = 1000
	capacity     = 5000 // streams that a node can carry
	roomsPerNode = 40   // rooms with people
	mostRooms    = 300
	leastSize    = 2
	mostSize     = 6
	fullRooms    = 3 // rooms that fill a node
	fullSize     = 25
	bigRoom      = "all-hands"
	bigSize      = 50
)

// party is a room with people in it.
type party struct {
	room string
	size int
}

func (p party) streams() int { return int(affinity.FullMesh(p.size)) }

// streamsOf adds up what the rooms of each node cost.
func streamsOf(pins map[string]pin) map[lease.NodeID]int {
	streams := make(map[lease.NodeID]int)
	for _, p := range pins {
		streams[p.node] += party{size: p.size}.streams()
	}
	return streams
}

// invite chooses the rooms that people join. The larger ones fill the node that the hash chooses for the big
// room.
func (t *tour) invite() {
	owner := t.hashed(bigRoom)
	some := min(mostRooms, roomsPerNode*t.o.Nodes)
	for _, room := range t.rooms[:some] {
		t.parties = append(t.parties, party{room, leastSize + t.rng.IntN(mostSize-leastSize+1)})
	}
	for _, room := range t.rooms[some:] {
		if len(t.parties) == some+fullRooms {
			return
		}
		if t.hashed(room) == owner {
			t.parties = append(t.parties, party{room, fullSize})
		}
	}
}

// hashed returns the owner that the hash chooses for a room.
func (t *tour) hashed(room string) lease.NodeID {
	table := t.seen[0].owners
	return table[placement.Of(room, len(table))]
}
