package split

import (
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// places is the maximum number of nodes in a world.
const places = 5

// heartbeat contains the latest data that a node has sent about itself.
type heartbeat struct {
	life         uint64 // incarnation; 0 = no process is known
	placed, owns bool
	left         bool
	table        table
	at           int // on the world's clock
}

// table contains the incarnations of the owners. The tables of real nodes only contain the ids: see agreed.
type table [places]uint8

// ids returns which ids own partitions in t.
func (w *world) ids(t table) (ids [places]bool) {
	for i, life := range t {
		ids[w.idOf(i)[0]-'a'] = ids[w.idOf(i)[0]-'a'] || life != 0
	}
	return ids
}

func (w *world) member(i int, b heartbeat) Member {
	return Member{lease.Incarnation{Node: w.idOf(i), Number: b.life}, b.placed, b.owns, time.Unix(0, int64(b.at))}
}

// idOf returns the id of the processes at a place.
func (w *world) idOf(i int) lease.NodeID {
	if w.sameID && i == w.size-1 {
		i--
	}
	return lease.NodeID(rune('a' + i))
}

// process runs a record, like the core of a node.
type process struct {
	Record
	runs    bool
	known   [places]heartbeat // including its own
	live    [places]bool
	back    [places]int // when the node last became live again for this process
	refused [places]int // the latest known heartbeat of the node when its address refused a connection
	missed  int         // the latest time at which a node missed a voter, as far as this process knows
	why     Why
}

// world contains a few processes, and a network that may be cut into two sides.
type world struct {
	*laws
	at    [places]*process
	side  uint8 // a bit for each place: on which side it is
	clock int

	cuts, starts, stops, crashes int // how many of these may still happen

	lives uint64
}

// laws contains what is the same in all states of a world.
type laws struct {
	size   int
	resets bool // a cut refuses connections
	sameID bool // the last two places have the same id, so a later process may start while the earlier one runs
	fault  fault
}

// fault specifies how a broken variant differs from the rule.
type fault string

const (
	none    fault = ""
	eager   fault = "a newcomer votes at once"
	unheard fault = "a newcomer does not hear that voters are missing"
	alone   fault = "a newcomer has no elders"
	hasty   fault = "silence is taken for an end"

	gullible  fault = "a refused connection is taken for an end"
	deaf      fault = "the Spread runs on while a voter is silent that then returns"
	impatient fault = "a refused connection is taken for an end while there is a majority, without later heartbeats"
)

// newWorld returns a world with running nodes that agree, and with empty places.
func newWorld(running int, l laws) *world {
	w := &world{laws: &l}
	for i := range w.at {
		w.at[i] = &process{}
	}
	for i := range running {
		w.begin(i)
		w.turn(i)
	}
	for range 4 {
		w.exchange()
	}
	for i := range running {
		w.turn(i)
		if s := w.at[i].seats[w.idOf(i)]; s == nil || s.vote == 0 {
			panic("the nodes do not agree")
		}
	}
	return w
}

// exchange makes each process send everything that it knows to all processes that it can reach.
func (w *world) exchange() {
	for i := range w.size {
		for j := range w.size {
			if w.reaches(i, j) {
				w.send(i, j)
			}
		}
	}
}

func (w *world) clone() *world {
	c := *w
	for i, p := range w.at {
		copied := *p
		copied.seats, copied.guests = cloneOf(p.seats), cloneOf(p.guests)
		copied.elders = maps.Clone(p.elders)
		c.at[i] = &copied
	}
	return &c
}

func cloneOf(seats map[lease.NodeID]*seat) map[lease.NodeID]*seat {
	c := make(map[lease.NodeID]*seat, len(seats))
	for id, s := range seats {
		copied := *s
		c[id] = &copied
	}
	return c
}

func (w *world) sameSide(i, j int) bool { return w.side>>i&1 == w.side>>j&1 }

// reaches reports whether a message from i reaches j. A process still sends messages after its leave message.
func (w *world) reaches(i, j int) bool {
	return i != j && w.at[i].runs && w.at[j].runs && !w.at[j].known[j].left && w.sameSide(i, j)
}

func (w *world) tick() int { w.clock++; return w.clock }

// begin starts a process that has not heard of any other process yet.
func (w *world) begin(i int) {
	w.lives++
	p := &process{Record: Record{Forget: time.Hour}, runs: true}
	p.known[i], p.live[i] = heartbeat{life: w.lives, at: w.tick()}, true
	p.placed = w.fault == alone
	w.at[i] = p
}

// start starts a process that joins through another process.
func (w *world) start(i, seed int) {
	w.begin(i)
	w.send(seed, i)
}

// send sends everything that i knows to j.
func (w *world) send(i, j int) {
	from, to := w.at[i], w.at[j]
	if own := &from.known[i]; own.at <= max(from.missed, to.missed, to.seatedAt(), to.lostAt()) && !own.left {
		own.at = w.tick() // it has sent a heartbeat
	}
	if w.misses(i) {
		from.missed = w.tick()
	}
	to.missed = max(to.missed, from.missed)
	for k, b := range from.known {
		if k != j && (from.live[k] || b.left) && b.at > to.known[k].at && b.life >= to.known[k].life {
			w.hear(j, k, b)
		}
	}
	for k, at := range from.refused {
		if at > to.refused[k] && k != j {
			to.refused[k] = at
			to.live[k] = to.live[k] && to.known[k].at > at
		}
	}
	w.turn(j)
}

// hear renews the lease of k in the view of j, unless j knows a later process with the same id.
func (w *world) hear(j, k int, b heartbeat) {
	to := w.at[j]
	if !to.live[k] {
		to.back[k] = w.tick()
	}
	to.known[k], to.live[k] = b, !b.left
	for place := range w.size {
		switch {
		case place == k || w.idOf(place) != w.idOf(k):
		case to.known[place].life > b.life:
			to.live[k] = false
		case place == j:
			to.runs = false // it stops with a DuplicateIDError
		default:
			to.live[place] = false
		}
	}
}

// refuse ends the lease of k in the view of i, because the address of k refused a connection.
func (w *world) refuse(i, k int) {
	w.at[i].refused[k] = w.at[i].known[k].at
	w.lose(i, k)
}

// lose ends the lease of k in the view of i.
func (w *world) lose(i, k int) {
	w.at[i].live[k] = false
	w.turn(i)
}

func (w *world) leave(i int) {
	b := &w.at[i].known[i]
	b.left, b.owns, b.at = true, false, w.tick()
}

// turn makes a process decide, and compute a table if it may own partitions.
func (w *world) turn(i int) {
	p := w.at[i]
	for range 3 {
		var members []Member
		var owners table
		for k, b := range p.known {
			if p.live[k] {
				m := w.member(k, b)
				if w.fault == impatient {
					m.Renewed = w.time(w.clock + 2)
				}
				members = append(members, m)
				if b.owns {
					owners[k] = uint8(b.life)
				}
			}
		}
		own := p.known[i]
		v := p.Decide(w.time(w.tick()), w.member(i, own).Incarnation, members, w.agreed(i, owners), ends{w, p})
		p.why = v.Why
		next := own
		next.owns = v.Owns
		if v.Owns {
			owners[i] = uint8(own.life)
			next.table, next.placed = owners, true
		}
		if next == own {
			return
		}
		next.at = w.tick()
		p.known[i] = next
	}
}

// agreed returns the time since which all nodes agree with i, or the zero time if they do not agree. Tables only
// contain ids, so a heartbeat with the same ids agrees even if its sender means an earlier process. A node that is live
// for a Spread after a process was first seen has heard of that process by then. So it can only mean an earlier process
// in heartbeats from before the end of that Spread. A node that was silent in the meantime has not heard of the
// process. Until a Spread after its return, its heartbeats may still mean an earlier process.
func (w *world) agreed(i int, owners table) time.Time {
	p, own := w.at[i], w.at[i].known[i]
	oldest := w.clock
	switch {
	case w.fault == eager:
		return w.time(oldest + 1)
	case !own.owns || own.table != owners || w.misses(i):
		return time.Time{}
	}
	for k, b := range p.known {
		if k == i || !p.live[k] || !b.placed {
			continue
		}
		if w.ids(b.table) != w.ids(own.table) || (b.at <= p.missed && w.fault != unheard) {
			return time.Time{}
		}
		if b.table == own.table {
			oldest = min(oldest, b.at)
		} else {
			oldest = min(oldest, p.back[k])
		}
	}
	return w.time(oldest)
}

// misses reports whether i announces that it misses a voter. The Spread after a return is over as soon as all live
// nodes have heard of all members that i knows.
func (w *world) misses(i int) bool {
	p := w.at[i]
	for k := range w.size {
		for m := range w.size {
			if p.live[k] && p.live[m] && w.at[k].known[m].life < p.known[m].life && w.fault != deaf {
				return p.Misses(p.returned)
			}
		}
	}
	p.returned = time.Time{}
	return p.short()
}

// seatedAt returns when the latest seat was taken, on the world's clock.
func (p *process) seatedAt() (at int) {
	for _, s := range p.seats {
		at = max(at, int(max(0, s.taken.UnixNano())))
	}
	for _, s := range p.guests {
		at = max(at, int(max(0, s.taken.UnixNano())))
	}
	return at
}

// lostAt returns when the latest voter was lost that refused connections and still has a seat.
func (p *process) lostAt() (at int) {
	for _, s := range p.seats {
		if s.refused {
			at = max(at, int(s.lost.UnixNano()))
		}
	}
	return at
}

func (w *world) time(at int) time.Time { return time.Unix(0, int64(at)) }

// ends contains what a process knows about the ends of other processes.
type ends struct {
	*world
	*process
}

// place returns where a process runs.
func (e ends) place(l lease.Incarnation) int {
	k := int(l.Node[0] - 'a')
	if k+1 < e.size && e.idOf(k+1) == l.Node && e.known[k+1].life == l.Number {
		k++
	}
	return k
}

func (e ends) Left(l lease.Incarnation) bool {
	k := e.place(l)
	b := e.known[k]
	return b.life == l.Number && (b.left || (e.fault == hasty && !e.live[k]) || (e.fault == gullible && e.Refused(l)))
}

func (e ends) Refused(l lease.Incarnation) bool {
	k := e.place(l)
	return e.known[k].life == l.Number && e.known[k].at <= e.refused[k]
}

// key leaves out what has no influence on the future. It contains the order of times, but not the times themselves.
func (w *world) key() string {
	var times []int
	for _, p := range w.at[:w.size] {
		times = append(append(times, p.missed, p.seatedAt()), p.back[:]...)
		for _, b := range p.known {
			times = append(times, b.at)
		}
		for _, s := range p.seats {
			times = append(times, int(max(0, s.taken.UnixNano())))
			if s.refused {
				times = append(times, int(s.lost.UnixNano()))
			}
		}
		for _, s := range p.guests {
			times = append(times, int(max(0, s.taken.UnixNano())))
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	rank := func(at int) int { i, _ := slices.BinarySearch(times, at); return i }
	key := []byte{w.side, byte(w.cuts), byte(w.starts), byte(w.stops), byte(w.crashes)}
	add := func(facts ...bool) {
		var b byte
		for i, fact := range facts {
			if fact {
				b |= 1 << i
			}
		}
		key = append(key, b)
	}
	for _, p := range w.at[:w.size] {
		if add(p.runs, !p.returned.IsZero()); !p.runs {
			continue
		}
		key = append(key, byte(rank(p.missed)), byte(rank(p.seatedAt())))
		for k, b := range p.known[:w.size] {
			add(b.placed, b.owns, b.left, p.live[k], p.elders[w.member(k, b).Incarnation], p.placed, b.at <= p.refused[k])
			key = append(append(key, byte(b.life), byte(rank(b.at)), byte(rank(p.back[k]))), b.table[:]...)
			if seat := p.seats[w.idOf(k)]; seat != nil {
				add(true, seat.lost.IsZero(), seat.refused)
				if seat.refused {
					key = append(key, byte(rank(int(seat.lost.UnixNano()))))
				}
				key = append(key, byte(seat.vote), byte(seat.latest), byte(rank(int(max(0, seat.taken.UnixNano())))))
			} else {
				add(false)
			}
			if guest := p.guests[w.idOf(k)]; guest != nil {
				key = append(key, 1, byte(guest.latest), byte(rank(int(max(0, guest.taken.UnixNano())))))
			} else {
				add(false)
			}
		}
	}
	return string(key)
}
