package affinity

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// Streams returns the number of forwarded streams of a room in which each publisher sends its stream to all
// other participants. Streams is the default of Config.Cost. A demand with Units costs its Units.
func (d Demand) Streams() int64 {
	p, s := int64(max(0, d.Publishers, d.Size)), int64(max(0, d.Subscribers))
	return max(d.Units, capacity.Times(p, capacity.Plus(max(0, p-1), s)))
}

// FullMesh returns the cost of a room in which each of n participants receives the streams of all others:
// n·(n−1) forwarded streams.
func FullMesh(n int) int64 { return Demand{Size: n}.Streams() }

// cost returns the units of a room, which include what is reserved for it.
func (r *Resolver) cost(n capacity.Need) int64 { return max(r.used(n), n.Ahead) }

// used returns the units that a room costs without its reservation.
func (r *Resolver) used(n capacity.Need) int64 {
	if n.Units > 0 {
		return max(r.cfg.MinCost, n.Units)
	}
	return max(r.cfg.MinCost, r.cfg.Cost(demandOf(n)))
}

// settingCost is the name of the setting that contains the results of Config.Cost for costDemands. If you
// change the list, change the name, too, because otherwise roost versions with different lists would refuse
// each other.
const settingCost = "cost"

func costDemands() []Demand {
	return []Demand{
		{},
		{Size: 1},
		{Size: 2},
		{Size: 3},
		{Size: 10},
		{Size: 50},
		{Size: 1000},
		{Publishers: 1, Subscribers: 1},
		{Publishers: 1, Subscribers: 100},
		{Publishers: 10, Subscribers: 500},
		{Subscribers: 20},
		{Units: 1},
	}
}

func costsOf(cfg Config) string {
	r := Resolver{cfg: cfg}
	var costs []string
	for _, d := range costDemands() {
		costs = append(costs, strconv.FormatInt(r.cost(needOf(d)), 10))
	}
	return strings.Join(costs, ",")
}

// explainCost returns a text about the first demand whose costs differ, or "".
func explainCost(d pinstore.Difference) string {
	ours, theirs := strings.Split(d.Ours, ","), strings.Split(d.Theirs, ",")
	for i, demand := range costDemands() {
		if d.Setting == settingCost && i < len(ours) && i < len(theirs) && ours[i] != theirs[i] {
			return fmt.Sprintf("cost of %v is %.20s here and %.20s", demand, ours[i], theirs[i])
		}
	}
	return ""
}
