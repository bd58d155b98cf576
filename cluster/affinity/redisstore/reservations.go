package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// keepReservations is the TTL of the key of all reservations. No reservation lasts longer: see
// affinity.Resolver.Reserve.
const keepReservations = 25 * time.Hour

// Reserve implements pinstore.Store. Reserve takes two round trips: it first reads the earlier reservations, and
// then replaces those of the room. Reservations that have ended are removed on this occasion.
func (s *Store) Reserve(ctx context.Context, r pinstore.Reservation) error {
	what := fmt.Sprintf("reservation of room %.80q", r.Room)
	if err := check(&pinstore.Op{Room: r.Room, Set: pinstore.Pin{Needs: r.Needs}}); err != nil {
		return storeError(what, err)
	}
	if strings.Contains(r.Needs, "|") {
		return storeError(what, errReservation)
	}
	key := []string{keys{prefix: s.prefix}.reservations()}
	there, err := s.conn.Do(ctx, command("ZRANGE", key, "0", "-1"))[0].Texts()
	if err != nil {
		return storeError(what, err)
	}
	ended := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10)
	commands := []redisconn.Command{command("ZREMRANGEBYSCORE", key, "-inf", ended)}
	set := ""
	if !r.Until.IsZero() {
		until := strconv.FormatInt(r.Until.UnixMilli(), 10)
		set = until + "|" + r.Needs + "|" + r.Room
		commands = append(commands,
			command("ZADD", key, until, set),
			command("PEXPIRE", key, strconv.FormatInt(keepReservations.Milliseconds(), 10)))
	}
	for _, member := range there {
		if old, err := parseReservation(member); err == nil && old.Room == r.Room && member != set {
			commands = append(commands, command("ZREM", key, member)) // after ZADD, so that the room always has one
		}
	}
	for _, reply := range s.conn.Do(ctx, commands...) {
		if reply.Err != nil {
			return storeError(what, reply.Err)
		}
	}
	return nil
}

// Reservations implements pinstore.Store. Reservations takes one command. If two users reserved a room at the same
// time, the reservation that ends later counts.
func (s *Store) Reservations(ctx context.Context) ([]pinstore.Reservation, error) {
	const what = "reservations"
	key := []string{keys{prefix: s.prefix}.reservations()}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	members, err := s.conn.Do(ctx, command("ZRANGEBYSCORE", key, "("+now, "+inf"))[0].Texts()
	if err != nil {
		return nil, storeError(what, err)
	}
	all := make([]pinstore.Reservation, 0, len(members))
	at := make(map[string]int, len(members)) // place of each room in all
	for _, member := range members {
		r, err := parseReservation(member)
		if err != nil {
			continue // of a later release, or not of roost; the other reservations must still count
		}
		if i, twice := at[r.Room]; twice {
			all[i] = r // members are sorted by their ends
			continue
		}
		at[r.Room] = len(all)
		all = append(all, r)
	}
	return all, nil
}

// parseReservation parses a member of the zset of reservations. Only the name of the room can contain |.
func parseReservation(member string) (pinstore.Reservation, error) {
	const fields = 3
	f := strings.SplitN(member, "|", fields)
	if len(f) != fields {
		return pinstore.Reservation{}, errReservation
	}
	until, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || len(f[1]) > maxNeeds {
		return pinstore.Reservation{}, errReservation
	}
	return pinstore.Reservation{Room: f[2], Needs: f[1], Until: time.UnixMilli(until)}, nil
}
