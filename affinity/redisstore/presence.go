package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/placement"
)

var (
	//go:embed presence_beat.lua
	beatSource string
	//go:embed presence_members.lua
	membersSource string
	//go:embed presence_count.lua
	countSource string
)

// Presence is an affinity.PresenceStore on Redis: a zset for each room, under
// {partition}:u:room behind the prefix, participant → last heartbeat in ms. All
// time is the Redis server's. A clock that jumps, as when a replica takes over, moves
// by as much when the members of crashed nodes go stale, and is made up for by the
// next heartbeat of all others.
type Presence struct {
	store                *Store
	beat, members, count script
}

var _ affinity.PresenceStore = (*Presence)(nil)

// Presence returns the store of who is in which room, on the same Redis and with
// the same prefix. It needs no end of its own: it ends with s.
func (s *Store) Presence() *Presence {
	return &Presence{s, newScript(beatSource), newScript(membersSource), newScript(countSource)}
}

// occupants is the zset of a room's participants.
func (k keys) occupants(p placement.Partition, room string) string { return k.tag(p) + ":u:" + room }

// most is how many participants one command names: a script can hand on some 8,000
// arguments, two a participant, and the server does nothing else meanwhile.
const most = 1000

// Beat implements affinity.PresenceStore, with one command for each room.
func (s *Presence) Beat(ctx context.Context, stale time.Duration, seats ...affinity.Seat) error {
	age, err := milliseconds(stale)
	if err != nil {
		return err
	}
	var calls []call
	for _, room := range s.byRoom(seats) {
		for names := range slices.Chunk(room.participants, most) {
			calls = append(calls, call{[]string{room.key}, append([]string{age}, names...)})
		}
	}
	_, err = s.run(ctx, "presence: beat", s.beat, calls)
	return err
}

// Leave implements affinity.PresenceStore, with one command for each room.
func (s *Presence) Leave(ctx context.Context, seats ...affinity.Seat) error {
	var commands []command
	for _, room := range s.byRoom(seats) {
		for names := range slices.Chunk(room.participants, most) {
			commands = append(commands, command{"ZREM", []string{room.key}, names})
		}
	}
	results, err := s.store.doPlain(ctx, commands...)
	return firstFault("presence: leave", results, err)
}

// Members implements affinity.PresenceStore. A room that nobody is in costs what
// one with somebody costs.
func (s *Presence) Members(ctx context.Context, stale time.Duration, room affinity.RoomRef) ([]affinity.Occupant, error) {
	age, err := milliseconds(stale)
	if err != nil {
		return nil, err
	}
	const what = "presence: members"
	key := s.store.keys.occupants(room.Partition, room.Room)
	results, err := s.run(ctx, what, s.members, []call{{[]string{key}, []string{age}}})
	if err != nil {
		return nil, err
	}
	fields, err := results[0].ToArray()
	if err != nil {
		return nil, fault(what, err)
	}
	members := make([]affinity.Occupant, 0, len(fields)/2)
	for ; len(fields) >= 2; fields = fields[2:] {
		name, nameErr := fields[0].ToString()
		idle, idleErr := fields[1].AsInt64()
		if err := errors.Join(nameErr, idleErr); err != nil {
			return nil, fault(what, err)
		}
		members = append(members, affinity.Occupant{Participant: name, Idle: time.Duration(idle) * time.Millisecond})
	}
	return members, nil
}

// Count implements affinity.PresenceStore, with one command for each room.
func (s *Presence) Count(ctx context.Context, stale time.Duration, rooms ...affinity.RoomRef) ([]int, error) {
	age, err := milliseconds(stale)
	if err != nil {
		return nil, err
	}
	const what = "presence: count"
	calls := make([]call, len(rooms))
	for i, room := range rooms {
		calls[i] = call{[]string{s.store.keys.occupants(room.Partition, room.Room)}, []string{age}}
	}
	results, err := s.run(ctx, what, s.count, calls)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(rooms))
	for i, r := range results {
		n, err := r.AsInt64()
		if err != nil {
			return nil, fault(what, err)
		}
		counts[i] = int(n)
	}
	return counts, nil
}

type roomSeats struct {
	key          string
	participants []string
}

// byRoom gathers seats by room, in the order in which rooms first appear.
func (s *Presence) byRoom(seats []affinity.Seat) []roomSeats {
	index := make(map[affinity.RoomRef]int)
	var rooms []roomSeats
	for _, seat := range seats {
		i, ok := index[seat.Ref()]
		if !ok {
			i = len(rooms)
			index[seat.Ref()] = i
			rooms = append(rooms, roomSeats{key: s.store.keys.occupants(seat.Partition, seat.Room)})
		}
		rooms[i].participants = append(rooms[i].participants, seat.Participant)
	}
	return rooms
}

// run runs a script on the connections that are not tracked.
func (s *Presence) run(ctx context.Context, what string, sc script, calls []call) ([]rueidis.RedisResult, error) {
	results, err := s.store.runPlain(ctx, sc, calls...)
	return results, firstFault(what, results, err)
}

func milliseconds(stale time.Duration) (string, error) {
	if stale < time.Millisecond {
		return "", fault("presence", fmt.Errorf("stale is %v; it must be at least 1ms", stale))
	}
	return strconv.FormatInt(stale.Milliseconds(), 10), nil
}

// firstFault makes one error of all in results, or of err, which is why there are
// none. Whoever calls writes all again, so the first one tells enough.
func firstFault(what string, results []rueidis.RedisResult, err error) error {
	if err != nil {
		return fault(what, err)
	}
	faults := 0
	for _, r := range results {
		if e := r.Error(); e != nil {
			if faults++; faults == 1 {
				err = e
			}
		}
	}
	switch {
	case faults == 0:
		return nil
	case len(results) > 1:
		what = fmt.Sprintf("%s: %d of %d commands failed, the first", what, faults, len(results))
	}
	return fault(what, err)
}
