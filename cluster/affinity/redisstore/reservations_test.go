package redisstore

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
)

func reserve(t *testing.T, s *Store, room string, until time.Time) {
	t.Helper()
	if err := s.Reserve(t.Context(), pinstore.Reservation{Room: room, Needs: "units=5", Until: until}); err != nil {
		t.Fatal(err)
	}
}

// A list takes one command. The key expires after the last reservation, and does not keep those that have ended.
func TestReservations(t *testing.T) {
	server, s := started(t)
	key := names(s).reservations()
	server.ResetStats()
	if all, err := s.Reservations(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	calls := server.Commands()
	maps.DeleteFunc(calls, func(name string, _ int64) bool { return name == "info" || name == "config|resetstat" || name == "ping" })
	if len(calls) != 1 || calls["zrangebyscore"] != 1 {
		t.Errorf("commands %v; want one", calls)
	}
	past := strconv.FormatInt(time.Now().Add(-2*time.Minute).UnixMilli(), 10)
	server.Do("ZADD", key, past, past+"|units=5|past")
	reserve(t, s, "room", time.Now().Add(24*time.Hour))
	if left := server.Do("ZRANGE", key, "0", "-1"); strings.Contains(left, "past") {
		t.Errorf("members %q", left)
	}
	if ttl, err := strconv.Atoi(server.Do("PTTL", key)); err != nil || time.Duration(ttl)*time.Millisecond <= 24*time.Hour {
		t.Errorf("the key lasts %d ms (%v)", ttl, err)
	}
}

// Of two reservations for a room that were written at once, all users see the later one, and one call removes both.
func TestReservationsRace(t *testing.T) {
	server, s := started(t)
	for i := range 3 {
		until := strconv.FormatInt(time.Now().Add(time.Duration(1+i%2)*time.Hour).UnixMilli(), 10)
		server.Do("ZADD", names(s).reservations(), until, until+"|units="+strconv.Itoa(i)+"|room")
	}
	if all, err := s.Reservations(t.Context()); err != nil || len(all) != 1 || all[0].Needs != "units=1" {
		t.Errorf("%v, %v", all, err)
	}
	reserve(t, s, "room", time.Time{})
	if all, err := s.Reservations(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("removed: %v, %v", all, err)
	}
}

// A member that roost did not write does not hide the reservations. Invalid reservations are not written.
func TestReservationsGarbage(t *testing.T) {
	server := redistest.Start(t)
	s := ready(t, redisAt{URL: server.URL()})
	for _, member := range []string{"garbage", "x|units=5|room"} {
		later := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
		server.Do("ZADD", names(s).reservations(), later, member)
		reserve(t, s, "room", time.Now().Add(time.Hour))
		if all, err := s.Reservations(t.Context()); err != nil || len(all) != 1 || all[0].Room != "room" {
			t.Errorf("%s: %v, %v", member, all, err)
		}
		server.Do("DEL", names(s).reservations())
	}
	for _, r := range []pinstore.Reservation{{Room: "a*"}, {Room: "r", Needs: "a|b"}, {Room: "r", Needs: strings.Repeat("x", maxNeeds+1)}} {
		r.Until = time.Now().Add(time.Hour)
		if err := s.Reserve(t.Context(), r); err == nil {
			t.Errorf("%.80v was accepted", r)
		}
	}
}
