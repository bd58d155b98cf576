package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

var (
	//go:embed presence_heartbeat.lua
	presenceHeartbeatSource string
	//go:embed presence_members.lua
	membersSource string
	//go:embed presence_count.lua
	countSource string
)

// Presence is a presence.Store in Redis. Each room has a zset with the key {partition}:u:room after the
// prefix. The zset maps each participant to the time of its last heartbeat in ms.
//
// All times are measured by the clock of the Redis server. If that clock jumps, for example in a failover,
// the participants of crashed nodes become stale earlier or later by the same amount. For all other
// participants, the next heartbeat corrects the recorded time.
type Presence struct {
	store                     *Store
	heartbeat, members, count script
}

var _ presence.Store = (*Presence)(nil)

// Presence returns a presence store that uses the same Redis and the same prefix as s. Closing s also closes
// the presence store.
func (s *Store) Presence() *Presence {
	return &Presence{s, newScript(presenceHeartbeatSource), newScript(membersSource), newScript(countSource)}
}

// participants returns the key of the zset of a room's participants.
func (s *Store) participants(room presence.Room) string {
	return keys{prefix: s.prefix}.of(room.Partition, ":u:", room.Name)
}

// most is the maximum number of participants in a command. A script can pass at most about 8,000 arguments,
// needs two for each participant, and blocks the server while it runs.
const most = 1000

// Heartbeat implements presence.Store, with one command for each room.
func (s *Presence) Heartbeat(ctx context.Context, stale time.Duration, participants ...presence.Participant) error {
	age, err := milliseconds(stale)
	if err != nil {
		return err
	}
	var calls []call
	for _, room := range s.byRoom(participants) {
		for names := range slices.Chunk(room.participants, most) {
			calls = append(calls, call{[]string{room.key}, append([]string{age}, names...)})
		}
	}
	_, err = s.run(ctx, "heartbeat", s.heartbeat, calls)
	return err
}

// Leave implements presence.Store, with one command for each room.
func (s *Presence) Leave(ctx context.Context, participants ...presence.Participant) error {
	var commands []redisconn.Command
	for _, room := range s.byRoom(participants) {
		for names := range slices.Chunk(room.participants, most) {
			commands = append(commands, command("ZREM", []string{room.key}, names...))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	return firstError("leave", s.store.conn.Do(ctx, commands...))
}

// Members implements presence.Store. Members reads a room in pages of 1,000 participants with one command for
// each page, so that a huge room does not block the server. The pages are ordered by the time of the last
// heartbeat. A heartbeat moves a participant to the end, so a participant that is present all the time is on
// at least one page.
func (s *Presence) Members(ctx context.Context, stale time.Duration, room presence.Room) ([]presence.Member, error) {
	age, err := milliseconds(stale)
	if err != nil {
		return nil, err
	}
	var members []presence.Member
	place := make(map[string]int) // index in members by name
	key := []string{s.store.participants(room)}
	for last := "0"; ; {
		results, err := s.run(ctx, "members", s.members, []call{{key, []string{age, strconv.Itoa(most), last}}})
		if err != nil {
			return nil, err
		}
		var page []presence.Member
		if last, page, err = membersOf(results[0]); err != nil {
			return nil, presenceError("members", err)
		}
		for _, m := range page {
			if i, again := place[m.Name]; again {
				members[i] = m
				continue
			}
			place[m.Name] = len(members)
			members = append(members, m)
		}
		if last == "0" {
			return members, nil
		}
	}
}

// membersOf returns the participants on a page and the last heartbeat on the page. The last heartbeat is "0"
// if no page follows.
func membersOf(r redisconn.Reply) (last string, page []presence.Member, err error) {
	fields, err := r.List()
	if err != nil {
		return "", nil, err
	}
	if len(fields)%2 == 0 {
		return "", nil, fmt.Errorf("%d fields in the page of a room", len(fields))
	}
	last, ok := fields[0].(string)
	page = make([]presence.Member, 0, len(fields)/2)
	for fields = fields[1:]; len(fields) > 0; fields = fields[2:] {
		name, isText := fields[0].(string)
		idle, isNumber := fields[1].(int64)
		ok = ok && isText && isNumber
		page = append(page, presence.Member{Name: name, Idle: time.Duration(idle) * time.Millisecond})
	}
	if !ok {
		return "", nil, errAnswer
	}
	return last, page, nil
}

// Count implements presence.Store, with one command for each room.
func (s *Presence) Count(ctx context.Context, stale time.Duration, rooms ...presence.Room) ([]int, error) {
	age, err := milliseconds(stale)
	if err != nil {
		return nil, err
	}
	const what = "count"
	calls := make([]call, len(rooms))
	for i, room := range rooms {
		calls[i] = call{[]string{s.store.participants(room)}, []string{age}}
	}
	results, err := s.run(ctx, what, s.count, calls)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(rooms))
	for i, r := range results {
		n, err := r.Int()
		if err != nil {
			return nil, presenceError(what, err)
		}
		counts[i] = int(n)
	}
	return counts, nil
}

type roomBatch struct {
	key          string
	participants []string
}

// byRoom groups participants by room, in the order in which the rooms first appear.
func (s *Presence) byRoom(participants []presence.Participant) []roomBatch {
	index := make(map[presence.Room]int)
	var rooms []roomBatch
	for _, p := range participants {
		i, ok := index[p.Room]
		if !ok {
			i = len(rooms)
			index[p.Room] = i
			rooms = append(rooms, roomBatch{key: s.store.participants(p.Room)})
		}
		rooms[i].participants = append(rooms[i].participants, p.Name)
	}
	return rooms
}

// run runs a script once for each call.
func (s *Presence) run(ctx context.Context, what string, sc script, calls []call) ([]redisconn.Reply, error) {
	results := sc.run(ctx, s.store.conn, calls...)
	return results, firstError(what, results)
}

func milliseconds(stale time.Duration) (string, error) {
	if stale < time.Millisecond {
		return "", presenceError("stale time", fmt.Errorf("stale is %v; it must be at least 1ms", stale))
	}
	return strconv.FormatInt(stale.Milliseconds(), 10), nil
}

// presenceError wraps err in presence.ErrStore and names the operation.
func presenceError(what string, err error) error { return errorOf(presence.ErrStore, what, err) }

// firstError returns the first error in results. The first error is sufficient, because the caller repeats
// all commands.
func firstError(what string, results []redisconn.Reply) (err error) {
	problems := 0
	for _, r := range results {
		if e := r.Err; e != nil {
			if problems++; problems == 1 {
				err = e
			}
		}
	}
	switch {
	case problems == 0:
		return nil
	case len(results) > 1:
		what = fmt.Sprintf("%s: %d of %d commands failed, the first", what, problems, len(results))
	}
	return presenceError(what, err)
}
