package rebalance_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/rebalance"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A world has three nodes with a capacity of 10 units each, and rooms of 3 units. At first, nodes a and b host
// rooms. A node with four rooms is overloaded, and an empty node has headroom for two rooms.
const (
	worldCapacity = 10
	worldUnits    = 3
	worldHigh     = 90
	worldLow      = 80
	worldSettle   = 5 * time.Second
	worldBeats    = 4 * time.Second // two heartbeats: an older report counts as full
	worldTick     = 2500 * time.Millisecond
)

// worldFault is a rule that a broken variant ignores.
type worldFault string

const (
	noReservation worldFault = "nothing is reserved"
	ownOnly       worldFault = "each node reserves for itself alone"
	noRest        worldFault = "a moved room may move again"
	noLowMark     worldFault = "a node stops at the high mark"
	noHighMark    worldFault = "a node starts at the low mark"
	trustsStale   worldFault = "an old report counts"
	forgets       worldFault = "a lost answer is not followed by a read"
	blind         worldFault = "a move replaces any pin"
	trustsLoad    worldFault = "the load counts as measured, although a room has just left"
)

// These are the invariants.
const (
	staysBelow  = "a move leaves its target below the low mark"
	rests       = "no room moves twice within ten minutes"
	stopsLow    = "an overloaded node stops below the low mark"
	startsHigh  = "only a node above the high mark starts to move rooms"
	ownRooms    = "a node only moves rooms that are pinned to it"
	movesEnough = "no room moves when enough rooms have moved"
)

type worldLimits struct {
	a, b                                                   int // rooms at first
	ticks, reports, grows, ends, dies, lost, rests, others int
	measured                                               bool // by the application: a room that has left counts for a while
}

// world runs the real Mover, the real reservations and a real Memory on each node.
type world struct {
	fault  worldFault
	left   worldLimits
	nodes  []*worldNode
	store  *pinstore.Memory
	rooms  map[string]bool
	moved  map[string]time.Time // when each room last moved
	places []placed             // what nodes have reserved, and what the store has counted
	table  *placement.Table
	broken string
}

type worldNode struct {
	lease.Incarnation
	mover    rebalance.Mover
	reserved capacity.Reservations
	hosts    map[string]time.Time // when a room arrived by a move; zero if it began here
	left     []time.Time          // when rooms left that the measured load may still include
	own      int64                // load of the application besides the rooms
	grew     time.Time            // when own last grew
	dead     bool
	doubt    string // room whose move was not answered
	relieves bool   // the load was above the high mark, and not at or below the low mark since
	load     int64  // in the latest report
	reported time.Time
}

type placed struct {
	by, at lease.NodeID
	when   time.Time
}

func newWorld(l worldLimits, f worldFault) *world {
	w := &world{fault: f, left: l, store: pinstore.NewMemory(), rooms: make(map[string]bool), moved: make(map[string]time.Time)}
	in := placement.Input{Partitions: 1}
	for i := range 3 {
		id := lease.NodeID(rune('a' + i))
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
		n := &worldNode{Incarnation: lease.Incarnation{Node: id, Number: 1}, hosts: make(map[string]time.Time)}
		n.mover = rebalance.Mover{High: worldHigh, Low: worldLow}
		if l.measured {
			n.mover.Settle = worldSettle
		}
		if f == noLowMark {
			n.mover.Low = worldHigh
		}
		if f == noHighMark {
			n.mover.High = worldLow
		}
		n.reserved = capacity.Reservations{Limits: capacity.Ceilings{Soft: worldLow}, Settle: worldSettle}
		for r := range []int{l.a, l.b, 0}[i] {
			room := fmt.Sprintf("%s%d", id, r)
			w.rooms[room], n.hosts[room] = true, time.Time{}
			w.swap(pinstore.Op{Room: room, Set: pinstore.Pin{Incarnation: n.Incarnation}})
		}
		w.nodes = append(w.nodes, n)
	}
	w.table, _ = placement.Compute(in)
	time.Sleep(time.Hour)
	for _, n := range w.nodes {
		w.report(n)
	}
	return w
}

func (w *world) swap(op pinstore.Op) pinstore.Result {
	op.TTL = 24 * time.Hour
	return w.store.Swap(context.Background(), op)[0]
}

func (w *world) pin(room string) pinstore.Pin { return w.swap(pinstore.Op{Room: room}).Pin }

func (n *worldNode) carries() int64 { return n.own + int64(len(n.hosts))*worldUnits }

// measured is the load that n reports.
func (n *worldNode) measured() int64 { return n.carries() + int64(len(n.left))*worldUnits }

// committed is what a node carries once all participants have followed their rooms.
func (w *world) committed(n *worldNode) int64 {
	units := n.own
	for room := range w.rooms {
		if w.pin(room).Incarnation == n.Incarnation {
			units += worldUnits
		}
	}
	return units
}

// snapshot is what n knows: its own load, and the reports of the others.
func (w *world) snapshot(n *worldNode) *cluster.Snapshot {
	s := &cluster.Snapshot{Table: w.table}
	for _, o := range w.nodes {
		m := &cluster.Member{
			Profile: lease.Profile{ID: o.Node, Incarnation: o.Number, Weight: 1, Capacity: worldCapacity},
			State:   lease.Active, Load: o.load, Renewed: o.reported,
		}
		if o == n {
			m.Load, m.Renewed, s.Self = n.measured(), time.Now(), m
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func (w *world) report(n *worldNode) { n.load, n.reported = n.measured(), time.Now() }

func (w *world) breaks(invariant string) {
	if w.broken == "" {
		w.broken = invariant
	}
}

// move makes n move one room, if it wants to. If lost is set, n does not hear the store's answer.
func (w *world) move(n *worldNode, lost bool) {
	if n.doubt != "" && w.fault != forgets {
		if w.pin(n.doubt).Incarnation != n.Incarnation {
			delete(n.hosts, n.doubt)
		}
		n.doubt = ""
	}
	s, now := w.snapshot(n), time.Now()
	n.reserved.Expire(s, now)
	excess := n.mover.Excess(n.mover.Load(now, 0, n.measured()), worldCapacity)
	n.relieves = n.carries() > worldCapacity*worldHigh/100 || n.relieves && n.carries() > worldCapacity*worldLow/100
	if excess == 0 {
		if n.relieves && n.carries() <= worldCapacity*worldHigh/100 {
			w.breaks(stopsLow)
		}
		return
	}
	var rooms []rebalance.Room
	for _, room := range slices.Sorted(maps.Keys(n.hosts)) {
		if came := n.hosts[room]; came.IsZero() || now.Sub(came) >= rebalance.Rest || w.fault == noRest {
			rooms = append(rooms, rebalance.Room{Name: room, Units: worldUnits})
		}
	}
	overload := rebalance.Overload{
		Node: n.Node, Snapshot: s, Reserved: &n.reserved, Excess: excess,
		Recent: func(m *cluster.Member) bool { return w.fault == trustsStale || m.Age() <= worldBeats },
	}
	for m := range overload.Moves(rooms, func(r rebalance.Room) capacity.Request { return capacity.Request{Room: r.Name, Cost: r.Units} }) {
		if w.fault == noReservation {
			n.reserved.Cancel(m.Reserved)
		}
		if w.try(n, m, lost) {
			return
		}
	}
}

// try replaces the pin of a room. try returns false if another node has filled the target, or the room has moved
// already.
func (w *world) try(n *worldNode, move rebalance.Move, lost bool) bool {
	room, m, reserved := move.Room.Name, move.To.Member, move.Reserved
	to := w.nodes[m.ID[0]-'a']
	op := pinstore.Op{Room: room, If: pinstore.Pin{Incarnation: n.Incarnation}, Set: pinstore.Pin{Incarnation: to.Incarnation}}
	before := w.pin(room)
	if w.fault == blind {
		op.If = before
	}
	if w.fault != noReservation && w.fault != ownOnly {
		op.Limit, op.Units, op.Window = n.reserved.Limits.SoftOf(m)-m.Load, worldUnits, m.Age()+worldSettle
	}
	res := w.swap(op)
	if res.Full {
		n.reserved.Cancel(reserved)
		n.reserved.Raise(m.ID, res.Counted)
		return false
	}
	if !res.Done {
		n.reserved.Cancel(reserved)
		return false
	}
	if before.Incarnation != n.Incarnation {
		w.breaks(ownRooms)
	}
	w.check(n, to, room)
	w.places = append(w.places, placed{n.Node, to.Node, time.Now()})
	w.moved[room] = time.Now()
	if lost {
		n.doubt = room
	} else {
		delete(n.hosts, room)
		if w.left.measured {
			n.left = append(n.left, time.Now())
		}
		if w.fault != trustsLoad {
			n.mover.Departed(time.Now(), worldUnits)
		}
	}
	return true
}

// check checks a move that the store has just made.
func (w *world) check(n, to *worldNode, room string) {
	known := w.committed(to)
	if !to.grew.IsZero() && time.Since(to.grew) <= worldBeats { // nobody can know yet
		known -= to.own
	}
	last, moved := w.moved[room]
	switch {
	case known > worldCapacity*worldLow/100:
		w.breaks(staysBelow)
	case moved && time.Since(last) < rebalance.Rest:
		w.breaks(rests)
	case !n.relieves:
		w.breaks(startsHigh)
	case w.committed(n)+worldUnits <= worldCapacity*worldLow/100:
		w.breaks(movesEnough)
	}
}

// arrive makes the participants of moved rooms follow them, after their former hosts have heard of the moves.
func (w *world) arrive() {
	for _, n := range w.nodes {
		maps.DeleteFunc(n.hosts, func(room string, _ time.Time) bool {
			at := w.pin(room)
			return at.Number > 0 && at.Incarnation != n.Incarnation
		})
		n.left = slices.DeleteFunc(n.left, func(at time.Time) bool { return time.Since(at) >= worldSettle })
	}
	for room := range w.rooms {
		at := w.pin(room)
		for _, n := range w.nodes {
			if _, hosts := n.hosts[room]; n.Incarnation == at.Incarnation && !hosts && !n.dead {
				n.hosts[room] = w.moved[room]
			}
		}
	}
}

// action is something that can happen in a world.
type action struct {
	what string
	do   func(*world)
}

func (w *world) actions() (all []action) {
	add := func(left int, what string, do func(*world)) {
		if left > 0 {
			all = append(all, action{what, do})
		}
	}
	for i, n := range w.nodes {
		if n.dead {
			continue
		}
		at := func(f func(*world, *worldNode)) func(*world) { return func(w *world) { f(w, w.nodes[i]) } }
		add(1, string(n.Node)+" moves", at(func(w *world, n *worldNode) { w.move(n, false) }))
		add(w.left.lost, string(n.Node)+" moves, answer lost", at(func(w *world, n *worldNode) { w.left.lost--; w.move(n, true) }))
		add(w.left.reports, string(n.Node)+" reports", at(func(w *world, n *worldNode) { w.left.reports--; w.report(n) }))
	}
	if c := w.nodes[2]; !c.dead {
		add(w.left.dies, "c dies", func(w *world) { w.left.dies--; w.nodes[2].dead = true })
		add(w.left.grows, "c grows", func(w *world) { w.left.grows--; w.nodes[2].own += 4; w.nodes[2].grew = time.Now() })
	}
	add(w.left.ends, "a's own rooms end", func(w *world) {
		w.left.ends--
		for room := range w.nodes[0].hosts {
			w.swap(pinstore.Op{Room: room, If: pinstore.Pin{Incarnation: w.nodes[0].Incarnation}})
			delete(w.rooms, room)
		}
		clear(w.nodes[0].hosts)
	})
	add(w.left.others, "somebody moves a room of a to b", func(w *world) {
		w.left.others--
		a, b := w.nodes[0], w.nodes[1]
		for _, room := range slices.Sorted(maps.Keys(a.hosts)) {
			if w.pin(room).Incarnation == a.Incarnation {
				w.swap(pinstore.Op{Room: room, If: pinstore.Pin{Incarnation: a.Incarnation}, Set: pinstore.Pin{Incarnation: b.Incarnation}})
				w.moved[room] = time.Now()
				return
			}
		}
	})
	add(w.left.ticks, "time passes", func(w *world) { w.left.ticks--; time.Sleep(worldTick); w.arrive() })
	add(w.left.rests, "minutes pass", func(w *world) {
		w.left.rests--
		w.arrive()
		time.Sleep(rebalance.Rest - time.Second)
		for _, n := range w.nodes {
			w.report(n)
		}
	})
	return all
}

// key identifies the state of a world.
func (w *world) key() string {
	var b strings.Builder
	now := time.Now()
	age := func(t time.Time) time.Duration { return min(now.Sub(t), rebalance.Rest) }
	fmt.Fprint(&b, w.left, w.broken)
	for _, n := range w.nodes {
		fmt.Fprint(&b, "|", n.own, n.dead, n.doubt, n.relieves, n.load, age(n.reported), age(n.grew))
		for _, at := range n.left {
			fmt.Fprint(&b, " ", age(at))
		}
		for _, room := range slices.Sorted(maps.Keys(n.hosts)) {
			fmt.Fprint(&b, " ", room, age(n.hosts[room]))
		}
	}
	for _, room := range slices.Sorted(maps.Keys(w.rooms)) {
		fmt.Fprint(&b, " ", w.pin(room).Node)
	}
	for _, p := range w.places {
		if now.Sub(p.when) < time.Minute {
			fmt.Fprint(&b, " ", p.by, p.at, age(p.when))
		}
	}
	return b.String()
}

// worldState is a state by the way to it: a world cannot be copied, so it is built again for each step.
type worldState struct {
	trace  []action
	key    string
	next   []action
	broken string
}

func after(l worldLimits, f worldFault, trace []action) *worldState {
	w := newWorld(l, f)
	for _, a := range trace {
		a.do(w)
	}
	return &worldState{trace: trace, key: w.key(), next: w.actions(), broken: w.broken}
}

func exploreWorld(t *testing.T, l worldLimits, f worldFault) (r explore.Result[string]) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		m := explore.Model[*worldState, string]{
			Start: []*worldState{after(l, f, nil)},
			Key:   func(s *worldState) string { return s.key },
			Next: func(s *worldState, visit func(string, *worldState)) {
				for _, a := range s.next {
					visit(a.what, after(l, f, append(slices.Clip(s.trace), a)))
				}
			},
			MaxStates: 200_000,
		}
		for _, name := range []string{staysBelow, rests, stopsLow, startsHigh, ownRooms, movesEnough} {
			m.Invariants = append(m.Invariants, explore.Invariant[*worldState]{
				Name: name, Holds: func(s *worldState) bool { return s.broken != name },
			})
		}
		r = m.Run()
	})
	return r
}

// Two overloaded nodes move rooms to one target, while reports are late, answers are lost, and the target dies or fills up.
func TestModel(t *testing.T) {
	for what, l := range map[string]worldLimits{
		"late reports":   {a: 4, b: 4, ticks: 2, reports: 2},
		"a full target":  {a: 4, b: 4, ticks: 2, reports: 1, grows: 1},
		"a dead target":  {a: 4, b: 4, ticks: 1, reports: 1, dies: 1},
		"a lost answer":  {a: 4, b: 1, ticks: 1, reports: 1, lost: 1},
		"rooms that end": {a: 4, b: 3, ticks: 1, reports: 2, grows: 1, ends: 1},
		"minutes":        {a: 4, b: 3, ticks: 1, reports: 1, grows: 1, rests: 1},
		"other movers":   {a: 5, b: 4, ticks: 1, reports: 1, others: 1},
		"measured loads": {a: 4, b: 4, ticks: 2, reports: 2, measured: true},
	} {
		t.Run(what, func(t *testing.T) {
			if r := exploreWorld(t, l, ""); r.Broken != "" || !r.Whole {
				t.Error(r)
			} else {
				t.Log(r)
			}
		})
	}
}

// The model finds each broken rule.
func TestModelFindsBrokenRules(t *testing.T) {
	for f, c := range map[worldFault]struct {
		limits worldLimits
		want   string
	}{
		noReservation: {worldLimits{a: 4, b: 4}, staysBelow},
		ownOnly:       {worldLimits{a: 4, b: 4}, staysBelow},
		noRest:        {worldLimits{a: 4, b: 3, ticks: 1, reports: 2, grows: 1, ends: 1}, rests},
		noLowMark:     {worldLimits{a: 4}, stopsLow},
		noHighMark:    {worldLimits{a: 3}, startsHigh},
		trustsStale:   {worldLimits{a: 4, b: 3, ticks: 2, grows: 1}, staysBelow},
		forgets:       {worldLimits{a: 4, b: 1, lost: 1}, movesEnough},
		blind:         {worldLimits{a: 5, b: 4, others: 1}, ownRooms},
		trustsLoad:    {worldLimits{a: 4, b: 1, measured: true}, startsHigh},
	} {
		t.Run(string(f), func(t *testing.T) {
			if r := exploreWorld(t, c.limits, f); r.Broken != c.want {
				t.Errorf("want %q: %v", c.want, r)
			}
		})
	}
}
