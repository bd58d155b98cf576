// Package roomsim replays a recorded day of rooms against the code with which a Resolver chooses nodes. Use it to
// find out how many nodes a fleet needs, and how many rooms would move, before you run the fleet:
//
//	events, err := roomsim.ReadTrace(file)
//	…
//	result, err := roomsim.Run(events, roomsim.Config{Nodes: 20, Capacity: 10_000, Rebalance: 90})
//	…
//	fmt.Println(result.Fullest, result.Moves)
//
// The command roost sim rooms prints the result.
//
// # What is simulated
//
// Each room is resolved at a random node, with that node's knowledge: the loads that all nodes have reported, and
// the rooms that the node itself has placed since then. Nodes do not fail, the store answers at once, and
// participants follow a moved room at once.
package roomsim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/rebalance"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Event is a change of the number of participants of a room.
type Event struct {
	At           time.Duration // since the start of the trace; events must be in the order of time
	Room         string
	Participants int    // after the change; 0 = the room has ended
	Zone         string // where the room should be, if it is new; "" = anywhere
}

// Config describes the fleet. The zero value of each field means its default, except for Nodes and Capacity.
type Config struct {
	Nodes    int
	Capacity int64 // units of load that each node can carry

	// Zones are spread evenly over the nodes. Default: one zone.
	Zones []string

	// Cost returns the units of a room with a number of participants. Default affinity.FullMesh.
	Cost func(participants int) int64

	// SoftCeiling, HardCeiling and Rebalance are percentages of the capacity as in affinity.Config. Defaults 80, 0 and 0.
	SoftCeiling, HardCeiling, Rebalance int

	// Report is how often a node reports its load. Default 2 s.
	Report time.Duration

	// Seed picks the node at which each room is resolved.
	Seed uint64
}

// Result is what happened in a simulated fleet.
type Result struct {
	Nodes    int
	Duration time.Duration // from the first event to the last
	Joins    int           // participants that joined
	Rooms    int           // rooms that started
	Refused  int           // rooms that no node took at first

	Peak    Peak // the greatest load of all nodes together
	Fullest Full // the node that was the fullest of all
	Largest Room // the room that cost the most

	// Uneven is the greatest ratio of the fullest node's load to the mean load, of all moments in which the mean
	// was at least 70 % of the capacity. 0 = there was no such moment.
	Uneven float64

	Moves int // rooms that moved because of load
	Moved int // participants of these rooms

	// LeastMoves is a bound for Moves: each time a node was overloaded, the fewest of its rooms that had to leave.
	LeastMoves int

	// MovedAgain counts the moves of rooms that had moved less than ten minutes before.
	MovedAgain int
}

// Peak is a load at a moment.
type Peak struct {
	At    time.Duration
	Units int64
	Rooms int
}

// Full is a node at the moment at which it was the fullest.
type Full struct {
	Node  lease.NodeID
	At    time.Duration
	Units int64
}

// Room is a room at its largest.
type Room struct {
	Name         string
	Participants int
	Units        int64
}

const (
	partitions = 1024
	settle     = 5 * time.Second
	// relievedAtOnce is how many rooms a Resolver moves between two heartbeats.
	relievedAtOnce = 10
	loaded         = 0.7 // share of the capacity from which Uneven counts
)

// Check returns all problems of c as one error, or nil.
func (c Config) Check() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("roomsim: "+format, args...))
		}
	}
	check(c.Nodes > 0 && c.Nodes <= lease.MaxNodes, "%d nodes; it must be 1 to %d", c.Nodes, lease.MaxNodes)
	check(c.Capacity > 0, "a capacity of %d units; it must be at least 1", c.Capacity)
	check(c.Report > 0, "a report every %v; it must not be negative", c.Report)
	check(c.SoftCeiling > 0, "a soft ceiling of %d %%; it must be at least 1", c.SoftCeiling)
	check(c.HardCeiling == 0 || c.HardCeiling >= c.SoftCeiling, "the hard ceiling (%d %%) must not be below the soft ceiling (%d %%)", c.HardCeiling, c.SoftCeiling)
	check(c.Rebalance == 0 || c.Rebalance > c.SoftCeiling, "Rebalance (%d %%) must be above the soft ceiling (%d %%)", c.Rebalance, c.SoftCeiling)
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	c.SoftCeiling, c.Report = cmp.Or(c.SoftCeiling, affinity.Config{}.WithDefaults().SoftCeiling), cmp.Or(c.Report, 2*time.Second)
	if c.Cost == nil {
		c.Cost = affinity.FullMesh
	}
	if len(c.Zones) == 0 {
		c.Zones = []string{""}
	}
	return c
}

// fleet is a simulated fleet.
type fleet struct {
	Config
	Result
	random   *rand.Rand
	now      time.Duration
	start    time.Time // an arbitrary time, for code that needs one
	snapshot *cluster.Snapshot
	nodes    []*node
	of       map[*cluster.Member]*node
	rooms    map[string]*room
	load     int64
	next     int // node that reports next
	reports  time.Duration
}

type node struct {
	*cluster.Member
	reserved capacity.Reservations
	mover    rebalance.Mover
	rooms    map[string]*room
	load     int64
	counted  []counted // what the store has counted for this node
	over     bool      // overloaded at its latest report
}

type counted struct {
	units int64
	at    time.Duration
}

type room struct {
	name         string
	partition    placement.Partition
	need         capacity.Need
	at           *node // nil: refused
	participants int
	units        int64
	moved        time.Duration
	rests        bool // it has moved before
}

// Run simulates a fleet from the first event to the last. Run takes about a microsecond per event and node.
func Run(events []Event, c Config) (Result, error) {
	c = c.withDefaults()
	if err := c.Check(); err != nil {
		return Result{}, err
	}
	f, err := newFleet(c)
	if err != nil {
		return Result{}, err
	}
	for i, e := range events {
		if e.At < f.now || e.Participants < 0 {
			return Result{}, fmt.Errorf("roomsim: event %d of room %q at %v has %d participants and follows %v; events must be in order, and their participants not negative",
				i, e.Room, e.At, e.Participants, f.now)
		}
		f.advance(e.At)
		f.apply(e)
	}
	f.Duration = f.now
	return f.Result, nil
}

func newFleet(c Config) (*fleet, error) {
	f := &fleet{
		Config: c, Result: Result{Nodes: c.Nodes}, random: rand.New(rand.NewPCG(c.Seed, 1)), start: time.Unix(1<<31, 0),
		snapshot: new(cluster.Snapshot), rooms: make(map[string]*room), of: make(map[*cluster.Member]*node),
	}
	in := placement.Input{Partitions: partitions}
	for i := range c.Nodes {
		id := lease.NodeID(fmt.Sprintf("n-%d", i+1))
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
		n := &node{rooms: make(map[string]*room)}
		n.Member = &cluster.Member{
			Profile: lease.Profile{ID: id, Incarnation: 1, Weight: 1, Capacity: c.Capacity, Zone: c.Zones[i%len(c.Zones)]},
			State:   lease.Active, Renewed: f.start,
		}
		n.reserved = capacity.Reservations{
			Limits: capacity.Ceilings{Soft: c.SoftCeiling, Hard: c.HardCeiling}, Settle: settle, Now: f.clock,
		}
		n.mover = rebalance.Mover{High: c.Rebalance, Low: c.SoftCeiling}
		f.nodes = append(f.nodes, n)
		f.of[n.Member] = n
		f.snapshot.Members = append(f.snapshot.Members, n.Member)
	}
	slices.SortFunc(f.snapshot.Members, func(a, b *cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(in.Nodes, func(a, b placement.Node) int { return cmp.Compare(a.ID, b.ID) })
	var err error
	f.snapshot.Table, err = placement.Compute(in)
	return f, err
}

func (f *fleet) clock() time.Time { return f.start.Add(f.now) }

// advance lets the nodes report their loads until a time. The reports are spread evenly over Config.Report.
func (f *fleet) advance(to time.Duration) {
	for f.reports <= to {
		f.now = f.reports
		f.report(f.nodes[f.next])
		if f.next++; f.next == len(f.nodes) {
			f.next = 0
			f.weigh()
		}
		f.reports += max(1, f.Report/time.Duration(len(f.nodes)))
	}
	f.now = to
}

// report is the heartbeat of a node.
func (f *fleet) report(n *node) {
	n.Load, n.Renewed = n.load, f.clock()
	n.counted = slices.DeleteFunc(n.counted, func(c counted) bool { return f.now-c.at > f.Report+settle })
	n.reserved.Expire(f.snapshot, f.clock())
	if f.Rebalance > 0 {
		f.relieve(n)
	}
}

// weigh compares the loads of all nodes.
func (f *fleet) weigh() {
	greatest := int64(0)
	for _, n := range f.nodes {
		greatest = max(greatest, n.load)
	}
	if mean := float64(f.load) / float64(len(f.nodes)); mean >= loaded*float64(f.Capacity) {
		f.Uneven = max(f.Uneven, float64(greatest)/mean)
	}
}

// apply changes a room. A room that was refused tries again with its next event.
func (f *fleet) apply(e Event) {
	r := f.rooms[e.Room]
	if r == nil {
		if e.Participants == 0 {
			return
		}
		r = f.begin(e)
	}
	f.Joins += max(0, e.Participants-r.participants)
	r.participants = e.Participants
	if r.at == nil && e.Participants > 0 {
		f.place(r)
	}
	f.resize(r, f.cost(e.Participants))
	if e.Participants == 0 {
		if r.at != nil {
			delete(r.at.rooms, r.name)
		}
		delete(f.rooms, r.name)
	}
}

func (f *fleet) begin(e Event) *room {
	r := &room{name: e.Room, partition: placement.Of(e.Room, partitions), need: capacity.Need{Publishers: e.Participants, Mesh: true}}
	if e.Zone != "" {
		r.need.Rules = capacity.EncodeRules([]string{"zone:" + e.Zone}, nil)
	}
	f.rooms[r.name] = r
	f.Rooms++
	f.place(r)
	if r.at == nil {
		f.Refused++
	}
	return r
}

// place resolves a room at a random node.
func (f *fleet) place(r *room) {
	at := f.nodes[f.random.IntN(len(f.nodes))]
	q := f.request(r, f.cost(max(r.participants, r.need.Publishers)))
	for range f.nodes {
		to, reserved, err := at.reserved.Place(f.snapshot, q, 1)
		if err != nil {
			return
		}
		n := f.of[to.Member]
		if f.HardCeiling == 0 || f.count(n, q.Cost, at.reserved.Limits.HardOf(n.Member)) {
			r.at = n
			n.rooms[r.name] = r
			return
		}
		at.reserved.Cancel(reserved)
		at.reserved.Raise(n.ID, n.sum())
	}
}

func (f *fleet) request(r *room, cost int64) capacity.Request {
	return capacity.Request{
		Room: r.name, Partition: r.partition, Need: r.need, Cost: cost,
		Preferences: capacity.NewPreferences(f.snapshot, r.name, r.need, nil),
	}
}

// count is what the store does for an op with a limit.
func (f *fleet) count(n *node, units, ceiling int64) bool {
	if n.Load+n.sum()+units > ceiling {
		return false
	}
	n.counted = append(n.counted, counted{units, f.now})
	return true
}

func (n *node) sum() (units int64) {
	for _, c := range n.counted {
		units += c.units
	}
	return units
}

// cost returns the units of a room, at least 1 as by default in affinity.Config.
func (f *fleet) cost(participants int) int64 {
	if participants == 0 {
		return 0
	}
	return max(1, f.Cost(participants))
}

// resize changes what a room costs.
func (f *fleet) resize(r *room, units int64) {
	change := units - r.units
	r.units = units
	if units > f.Largest.Units {
		f.Largest = Room{r.name, r.participants, units}
	}
	if r.at == nil {
		r.units = 0
		return
	}
	r.at.load += change
	f.load += change
	f.fill(r.at)
	if f.load > f.Peak.Units {
		f.Peak = Peak{f.now, f.load, len(f.rooms)}
	}
}

func (f *fleet) fill(n *node) {
	if n.load > f.Fullest.Units {
		f.Fullest = Full{n.ID, f.now, n.load}
	}
}

// relieve moves rooms away from an overloaded node, as a Resolver does.
func (f *fleet) relieve(n *node) {
	excess := n.mover.Excess(n.load, f.Capacity)
	if excess > 0 && !n.over {
		f.LeastMoves += f.least(n, excess)
	}
	n.over = excess > 0
	for range relievedAtOnce {
		if excess <= 0 || !f.relieveOne(n, excess) {
			return
		}
		excess = n.mover.Excess(n.load, f.Capacity)
	}
}

// least returns the smallest number of rooms that have to leave a node.
func (f *fleet) least(n *node, excess int64) (rooms int) {
	var units []int64
	for _, r := range n.rooms {
		units = append(units, r.units)
	}
	slices.SortFunc(units, func(a, b int64) int { return cmp.Compare(b, a) })
	for _, u := range units {
		if excess <= 0 {
			break
		}
		rooms++
		excess -= u
	}
	return rooms
}

func (f *fleet) relieveOne(n *node, excess int64) bool {
	var rooms []rebalance.Room
	for name, r := range n.rooms {
		if !r.rests || f.now-r.moved >= rebalance.Rest {
			rooms = append(rooms, rebalance.Room{Name: name, Units: r.units, Size: r.participants})
		}
	}
	recent := f.clock().Add(-2 * f.Report)
	overload := rebalance.Overload{
		Node: n.ID, Snapshot: f.snapshot, Reserved: &n.reserved, Excess: excess,
		Recent: func(m *cluster.Member) bool { return !m.Renewed.Before(recent) },
	}
	for m := range overload.Moves(rooms, func(r rebalance.Room) capacity.Request { return f.request(n.rooms[r.Name], r.Units) }) {
		target := f.of[m.To.Member]
		if f.count(target, m.Room.Units, n.reserved.Limits.SoftOf(target.Member)) {
			f.move(n.rooms[m.Room.Name], target)
			return true
		}
		n.reserved.Cancel(m.Reserved)
		n.reserved.Raise(target.ID, target.sum())
	}
	return false
}

func (f *fleet) move(r *room, to *node) {
	f.Moves++
	f.Moved += r.participants
	if r.rests && f.now-r.moved < rebalance.Rest {
		f.MovedAgain++
	}
	delete(r.at.rooms, r.name)
	r.at.load -= r.units
	r.at, r.moved, r.rests = to, f.now, true
	to.rooms[r.name] = r
	to.load += r.units
	f.fill(to)
}
