package affinity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// MaxReservations is the maximum number of rooms with a reservation.
	MaxReservations = 1000

	// MaxReserved is how long a reservation can last.
	MaxReserved = 24 * time.Hour
)

// Reservation says that units of load are kept free for a room.
type Reservation struct {
	Room    string            `json:"room"`
	Units   int64             `json:"units"` // of load
	Prefer  []string          `json:"prefer,omitempty"`
	Require map[string]string `json:"require,omitempty"`
	Until   time.Time         `json:"until"`

	// Node is the node of the room. Node is empty if no node can take the room, or if the store did not answer.
	Node lease.NodeID `json:"node,omitempty"`
}

// Reserve keeps the cost of d free for a room from now until a time at most 24 h ahead, and returns the room's
// node. Call it before an event with many participants. The room need not exist yet.
//
// The room's node hosts the room as if it had the cost of d, or its own cost if that is greater. So the room
// counts toward the node's load, moves when the node drains, and fails over when the node dies. Participants
// use up the reserved units. If the application measures the load, the node reports in addition what the room
// does not use yet. When the reservation ends, a room that nobody uses ends, too. Release ends the room but not
// its reservation, so a node hosts the room again after a few seconds.
//
// A later call for the room replaces its reservation. If several callers reserve a room at once, they all get
// its node. Reserve fails with ErrDemand if d has no cost or if until is not within the next 24 h, and with
// ErrReservations if MaxReservations rooms are reserved. Reserve fails with ErrNoCapacity, and reserves nothing, if
// no node stays below its soft ceiling, or if the room lives on a node that would not. Reserve needs the store: it
// fails with ErrStore if the store does not answer, and then the reservation may or may not exist. Other errors are
// those of Resolve. Reserve takes up to five round trips.
func (r *Resolver) Reserve(ctx context.Context, room string, d Demand, until time.Time) (Assignment, error) {
	need, err := r.reservationOf(room, d, until)
	if err != nil {
		return Assignment{}, err
	}
	there, err := r.listReservations(ctx)
	if err != nil {
		return Assignment{}, err
	}
	if !slices.ContainsFunc(there, isFor(room)) && len(there) >= MaxReservations {
		return Assignment{}, fmt.Errorf("%w: %d rooms are reserved; cancel a reservation, or wait until one ends", ErrReservations, len(there))
	}
	got, err := r.ask(ctx, time.Now().Add(r.cfg.Budget), &r.shared.reserve, room, question{need: need, firm: true})
	switch {
	case err != nil:
		return Assignment{}, err
	case got.Source == Degraded:
		return Assignment{}, fmt.Errorf("%w: nothing is reserved for %q", pinstore.ErrStore, room)
	}
	kept, err := r.keepFree(got.Assignment, need)
	if err != nil {
		return Assignment{}, err
	}
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	entry := pinstore.Reservation{Room: room, Needs: need.Pin(pinstore.Pin{}).Needs, Until: until.Truncate(time.Millisecond)}
	if err := r.store.Store.Reserve(ctx, entry); err != nil {
		r.reserved.Failed(kept, err)
		return Assignment{}, err
	}
	return got.Assignment, nil
}

// reservationOf returns the need of a room without participants that has a reservation.
func (r *Resolver) reservationOf(room string, d Demand, until time.Time) (capacity.Need, error) {
	if err := check(room, d); err != nil {
		return capacity.Need{}, err
	}
	n, left := needOf(d), time.Until(until)
	if n.Size() == 0 && n.Units == 0 {
		return n, fmt.Errorf("%w: nothing to reserve: give a size, publishers and subscribers, or units", ErrDemand)
	}
	if left <= 0 || left > MaxReserved {
		return n, fmt.Errorf("%w: reserved until %s; it must be within the next %v", ErrDemand, until.Format(time.RFC3339), MaxReserved)
	}
	return capacity.Need{Ahead: r.cost(n), Rules: n.Rules}, nil
}

// keepFree reserves on the node of a room what a reservation adds to the cost of the room.
func (r *Resolver) keepFree(a Assignment, need capacity.Need) (capacity.Reservation, error) {
	has := r.known(a, capacity.Need{})
	if h := r.hosts.get(a.Room); h != nil {
		has = h.needed()
	}
	s := r.agent.Snapshot()
	m, live := s.Member(a.Node)
	more := need.Ahead - r.cost(has)
	if !live || more <= 0 {
		return capacity.Reservation{}, nil
	}
	q := r.request(s, a.Room, need).Request
	q.Cost, q.Firm = more, true
	kept, ok := r.reserved.PlaceOn(m, q)
	if !ok {
		return kept, fmt.Errorf("%w: %q lives on %s, which has no headroom for %d more units: move the room first", ErrNoCapacity, a.Room, a.Node, more)
	}
	return kept, nil
}

// CancelReservation ends the reservation of a room. If nobody uses the room, it ends, too, after about ten
// seconds. CancelReservation fails with ErrNoReservation or ErrStore.
func (r *Resolver) CancelReservation(ctx context.Context, room string) error {
	if err := CheckName(room); err != nil {
		return err
	}
	there, err := r.listReservations(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(there, isFor(room)) {
		return fmt.Errorf("%w: %q", ErrNoReservation, room)
	}
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	return r.store.Store.Reserve(ctx, pinstore.Reservation{Room: room})
}

// Reservations returns all reservations, sorted by room.
func (r *Resolver) Reservations(ctx context.Context) ([]Reservation, error) {
	there, err := r.listReservations(ctx)
	if err != nil {
		return nil, err
	}
	s := r.agent.Snapshot()
	all, unknown := make([]Reservation, len(there)), []string(nil)
	for i, e := range there {
		n := capacity.NeedIn(pinstore.Pin{Needs: e.Needs})
		all[i] = Reservation{Room: e.Room, Units: n.Ahead, Until: e.Until.UTC()}
		all[i].Prefer, all[i].Require = rulesOf(n)
		if a, ok := r.cached(e.Room); ok {
			all[i].Node = a.Node
		} else {
			unknown = append(unknown, e.Room)
		}
	}
	if len(unknown) > 0 {
		r.readAll(ctx, s, unknown, nil)
	}
	for i, e := range all {
		if known := r.cache.Get(e.Room); e.Node == "" && known != nil {
			all[i].Node = known.Pin.Node
		}
	}
	slices.SortFunc(all, func(a, b Reservation) int { return cmp.Compare(a.Room, b.Room) })
	return all, nil
}

// listReservations returns the reservations in the store.
func (r *Resolver) listReservations(ctx context.Context) ([]pinstore.Reservation, error) {
	if _, err := r.ready(""); err != nil {
		return nil, err
	}
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	return r.store.Store.Reservations(ctx)
}

func isFor(room string) func(pinstore.Reservation) bool {
	return func(e pinstore.Reservation) bool { return e.Room == room }
}

// rulesOf returns Prefer and Require of a need.
func rulesOf(n capacity.Need) (prefer []string, require map[string]string) {
	prefer, rules := capacity.ParseRules(n.Rules)
	if len(rules) == 0 {
		return prefer, nil
	}
	require = make(map[string]string, len(rules))
	for _, rule := range rules {
		label, value, _ := strings.Cut(rule, "=")
		require[label] = value
	}
	return prefer, require
}

const (
	// listTwice is the time in which each node reads the list of the reservations twice, to find out what is
	// reserved on it. If Config.Settle is shorter, Settle is used instead: a node stops counting its own claim for a
	// reservation after Settle, so the room's node must count the reservation by then.
	listTwice = 5 * time.Second

	// reservedAge is the maximum age of the cached pin of a reserved room if the store sends no notifications.
	reservedAge = 30 * time.Second
)

// ahead contains the reservations that the keeper knows.
type ahead struct {
	listed     time.Time
	generation uint64 // of the pin cache when they were listed
	rooms      map[string]*reservedRoom
	holds      bool     // some hostings here may exist only because of a reservation
	unused     []unused // by time
	reported   int64    // reserved units that this node reports in addition to its measured load
}

// reservedRoom is a room with a reservation.
type reservedRoom struct {
	pinstore.Reservation
	need    capacity.Need
	missing bool // the latest list did not contain it
	warned  bool // the log says that no node can take it
}

// unused is how many reserved units the rooms of this node did not use, from a time until the next entry.
type unused struct {
	units int64
	at    time.Time
}

// tendReservations counts the reservations of the rooms on this node, ends those that are over, and hosts the
// rooms that are reserved here. If the store did not answer, it only counts.
func (k *keeper) tendReservations(ctx context.Context, s *cluster.Snapshot, answered bool) {
	a, now := &k.ahead, time.Now()
	lists := answered && now.Sub(a.listed) >= min(listTwice, k.cfg.Settle)/2
	if lists {
		k.updateReservations(ctx, s, now)
	}
	units := make(map[string]int64, len(a.rooms))
	for room, e := range a.rooms {
		if !now.Before(e.Until) {
			delete(a.rooms, room)
			continue
		}
		units[room] = e.need.Ahead
	}
	if len(units) == 0 && !a.holds && k.counts.ahead.Load() == 0 {
		return
	}
	var over map[*Hosting]pinstore.Pin
	over, a.holds = k.hosts.reserve(units, answered && !a.listed.IsZero())
	for h, pin := range over {
		k.pulse(ctx)
		if err := h.void(ctx, pin); err != nil {
			k.cfg.Log.Debug("room of a reservation not released", "room", h.room, "err", err)
		}
	}
	if lists {
		k.hostReserved(ctx, s)
	}
}

// updateReservations reads the list of the reservations. A reservation that is no longer listed was cancelled,
// unless the store has lost its data. Then the hosts put their reservations back. A loss may be noticed only with the
// next heartbeat, so a reservation is cancelled when two lists in a row do not contain it.
func (k *keeper) updateReservations(ctx context.Context, s *cluster.Snapshot, now time.Time) {
	generation := k.cache.Generation()
	ctx, cancel := k.store.Bounded(ctx)
	defer cancel()
	listed, err := k.store.Store.Reservations(ctx)
	if err != nil {
		return // the next heartbeat finds out whether the store answers
	}
	before := k.ahead
	k.ahead.listed, k.ahead.generation, k.ahead.rooms = now, generation, make(map[string]*reservedRoom, len(listed))
	for _, e := range listed {
		r := &reservedRoom{Reservation: e, need: capacity.NeedIn(pinstore.Pin{Needs: e.Needs})}
		if old := before.rooms[e.Room]; old != nil {
			r.warned = old.warned
		}
		k.ahead.rooms[e.Room] = r
	}
	var missing []*reservedRoom
	for room, r := range before.rooms {
		if k.ahead.rooms[room] == nil && now.Before(r.Until) {
			missing = append(missing, r)
		}
	}
	if generation != before.generation {
		k.restoreReservations(ctx, s, missing, before.generation)
		return
	}
	for _, r := range missing {
		if !r.missing {
			r.missing = true
			k.ahead.rooms[r.Room] = r
		}
	}
}

// restoreReservations puts the reservations back that this node is responsible for. If the store fails, the next list
// continues, because it finds the former generation.
func (k *keeper) restoreReservations(ctx context.Context, s *cluster.Snapshot, lost []*reservedRoom, generation uint64) {
	back := 0
	for _, r := range lost {
		if k.hosts.get(r.Room) == nil && !k.ownsRoom(s, r.Room) {
			continue
		}
		if err := k.store.Store.Reserve(ctx, r.Reservation); err != nil {
			k.ahead.generation = generation
		} else {
			back++
		}
		k.ahead.rooms[r.Room] = r
	}
	if back > 0 {
		k.cfg.Log.Info("reservations restored after the store lost them", "rooms", back)
	}
}

// ownsRoom reports whether this node owns the partition of a room.
func (k *keeper) ownsRoom(s *cluster.Snapshot, room string) bool {
	if s.Table == nil {
		return false
	}
	owner, ok := s.Table.Owner(placement.Of(room, s.Table.Partitions()))
	return ok && owner == s.Self.ID
}

// hostReserved hosts the reserved rooms whose pins name this node, and pins those without a pin if this node owns
// their partition.
func (k *keeper) hostReserved(ctx context.Context, s *cluster.Snapshot) {
	if !k.sweeps(s) {
		return
	}
	var unhosted []*reservedRoom
	var unsure []string
	for room, e := range k.ahead.rooms {
		if k.hosts.get(room) != nil {
			continue
		}
		unhosted = append(unhosted, e)
		if k.unsure(room) {
			unsure = append(unsure, room)
		}
	}
	if len(unsure) > 0 {
		k.readAll(ctx, s, unsure, func() { k.pulse(ctx) })
	}
	for _, e := range unhosted {
		if k.store.Away() || ctx.Err() != nil || time.Now().After(k.due) {
			return // the next list continues
		}
		if k.cache.Get(e.Room) == nil && k.ownsRoom(s, e.Room) {
			k.place(ctx, e)
		}
		k.holdHere(ctx, e)
	}
}

// holdHere hosts a reserved room if its pin names this node. holdHere fails, for example, if this node drains.
func (k *keeper) holdHere(ctx context.Context, e *reservedRoom) {
	known := k.cache.Get(e.Room)
	if known == nil || !known.Confirmed || known.Pin.Incarnation != k.self() {
		return
	}
	if _, _, err := k.hostNew(ctx, e.Room, e.need, true); err != nil {
		k.cfg.Log.Debug("reserved room not hosted here", "room", e.Room, "err", err)
	}
}

// unsure reports whether the pin of a room has to be read from the store. The store notifies this node when a
// pin changes that it has read.
func (k *keeper) unsure(room string) bool {
	e := k.cache.Get(room)
	if e == nil || e.Pin.Incarnation == (lease.Incarnation{}) || e.Generation != k.cache.Generation() {
		return true
	}
	return !k.cache.IsFresh(e) && time.Since(e.Learned) > reservedAge
}

// place pins a reserved room without a pin. The units were promised, so the room may fill a node above its soft
// ceiling.
func (k *keeper) place(ctx context.Context, e *reservedRoom) {
	_, err := k.ask(ctx, time.Now().Add(k.cfg.Budget), &k.shared.resolve, e.Room, question{need: e.need})
	if err != nil && !e.warned && ctx.Err() == nil {
		k.cfg.Log.Warn("no node for a reservation, retrying", "room", e.Room, "units", e.need.Ahead, "err", err)
	}
	e.warned = err != nil
}

// reportAhead reports reserved units that no room uses yet, in addition to the other load. A measured load shows
// participants only some time after they have joined, so the units that they use up count for Settle longer.
func (k *keeper) reportAhead(units int64) {
	a, now := &k.ahead, time.Now()
	if k.cfg.ReportLoad {
		a.unused = nil
	}
	for len(a.unused) > 1 && now.Sub(a.unused[1].at) > k.cfg.Settle {
		a.unused = a.unused[1:]
	}
	if n := len(a.unused); n == 0 || a.unused[n-1].units != units {
		a.unused = append(a.unused, unused{units, now})
	}
	most := slices.MaxFunc(a.unused, func(a, b unused) int { return cmp.Compare(a.units, b.units) }).units
	if most != a.reported {
		a.reported = most
		k.work.aheadLoad(most)
	}
}
