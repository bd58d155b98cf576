//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// doctorSays returns nil if the doctor reports a problem of an agent with these texts.
func doctorSays(t *testing.T, p *proc, texts ...string) error {
	t.Helper()
	code, out, _ := roost(t, "doctor", "--over", "1ms", "--addr", p.Base)
	if strings.Contains(out, password) {
		t.Errorf("doctor shows the password:\n%s", out)
	}
	for _, text := range texts {
		if code != exitBroken || !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
			return fmt.Errorf("doctor: %d, without %q\n%s", code, text, out)
		}
	}
	return nil
}

// TestRedisFailsOver: the master behind a load balancer becomes a replica and stays up. The agents find the new master
// without a restart, and place new rooms.
func TestRedisFailsOver(t *testing.T) {
	t.Parallel()
	redis := redistest.StartBalanced(t)
	args := append(calm(), "--capacity", "1000", "--report-load", "--redis", redis.URL())
	a := agent(t, "a", args...)
	b := agent(t, "b", append(args, "--join", a.Gossip)...)
	agree(t, a, b)
	pinRoom(t, a, "before", 2)
	redis.Promote()
	for _, p := range []*proc{a, b} {
		p.Logs("store does not answer; resolving without it")
		eventually(t, func() error {
			return doctorSays(t, p, "READONLY", redis.Addr(), "this is a replica", "Do not restart agents")
		})
		eventually(t, func() error { // while the agent looks for the master, there is no list
			code, out, problem := roost(t, "rooms", "--addr", p.Base)
			if code != 0 || !strings.Contains(out, "rooms may be missing here, because Redis is in trouble (") {
				return fmt.Errorf("the list of a replica's rooms: %d, %s%s", code, out, problem)
			}
			return nil
		})
	}
	redis.Move()
	for _, p := range []*proc{a, b} {
		pinRoom(t, p, "after "+p.ID, 2)
		p.Logs("store answers again")
	}
	_, second := redis.Servers()
	for _, room := range []string{"before", "after a", "after b"} {
		if keys := second.Do("KEYS", "roost:roost:*:r:"+room); keys == "" {
			t.Errorf("the new master has no pin of %q", room)
		}
	}
}

// TestDoctorOnRedis: the doctor's advice about Redis depends on the error.
func TestDoctorOnRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		problem func(t *testing.T, redis *redistest.Server)
		url     func(u *url.URL)
		want    []string
	}{
		"password": {
			url:  func(u *url.URL) { u.User = url.UserPassword("", "not-"+password) },
			want: []string{"WRONGPASS", "correct the user and password"},
		},
		"no user": {url: func(u *url.URL) { u.User = nil }, want: []string{"NOAUTH", "correct the user and password"}},
		"rights": {
			problem: func(_ *testing.T, redis *redistest.Server) {
				redis.Do("ACL", "SETUSER", "poor", "on", ">"+password, "~*", "+@all", "-evalsha", "-eval")
			},
			url: func(u *url.URL) { u.User = url.UserPassword("poor", password) }, want: []string{"NOPERM", "access list"},
		},
		"replica": {problem: func(_ *testing.T, redis *redistest.Server) { redis.ReadOnly(true) }, want: []string{"READONLY", "this is a replica"}},
		"lost its master": {
			problem: func(_ *testing.T, redis *redistest.Server) {
				redis.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
				redis.ReadOnly(true)
			}, want: []string{"MASTERDOWN", "this is a replica"},
		},
		"full": {problem: func(_ *testing.T, redis *redistest.Server) { redis.Full(true) }, want: []string{"OOM", "give Redis more memory"}},
		"loading": {
			problem: func(t *testing.T, redis *redistest.Server) { t.Cleanup(redis.RestartLoading()) },
			want:    []string{"LOADING", "wait until Redis has loaded"},
		},
		"down": {
			problem: func(_ *testing.T, redis *redistest.Server) { redis.Kill() },
			want:    []string{"connection refused", "check whether Redis runs, and listens"},
		},
		"name": {url: func(u *url.URL) { u.Host = "redis.invalid:6379" }, want: []string{"lookup redis.invalid", "why the name has no address"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, "--requirepass", password)
			if c.problem != nil {
				c.problem(t, redis)
			}
			u, err := url.Parse(redis.URL())
			if err != nil {
				t.Fatal(err)
			}
			if c.url != nil {
				c.url(u)
			}
			p := agent(t, "a", append(calm(), "--redis", u.String())...)
			want := append(c.want, ") at "+u.Host+"/0", "Do not restart agents")
			eventually(t, func() error { return doctorSays(t, p, want...) })
			hidden(t, p)
		})
	}
}

// TestAnotherRedis: an agent uses another database of the same Redis, or no Redis. It gets no rooms from the other
// agents, and all agents name each other.
func TestAnotherRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := []string{"--heartbeat", "1s", "--ttl", "5s", "--capacity", "1000"}
	right := append(slices.Clone(args), "--report-load", "--redis", redis.URL())
	a := agent(t, "a", right...)
	b := agent(t, "b", append(right, "--join", a.Gossip)...)
	other := agent(t, "other", append(args, "--report-load", "--redis", redis.URL()+"/1", "--join", a.Gossip)...)
	none := agent(t, "none", append(args, "--join", a.Gossip)...)
	agree(t, a, b, other, none)
	silent := func(p *proc, want ...lease.NodeID) {
		t.Helper()
		eventually(t, func() error {
			s, err := p.Stats(t.Context())
			if err == nil && !slices.Equal(s.Rooms.Silent, want) {
				err = fmt.Errorf("%s says that %q are silent, want %q", p.ID, s.Rooms.Silent, want)
			}
			return err
		})
	}
	silent(a, "none", "other")
	silent(b, "none", "other")
	silent(other, "a", "b", "none")
	a.Logs("live nodes send no heartbeats to this store")
	err := errors.Join(
		doctorSays(t, a, "2 live nodes of this cluster without heartbeats in Redis at "+redis.Addr()+"/0: none, other", "restart those nodes"),
		doctorSays(t, other,
			"3 live nodes of this cluster without heartbeats in Redis at "+redis.Addr()+"/1: a, b, none",
			"this node may be the one"))
	if err != nil {
		t.Error(err)
	}
	if n := values(t, metricsOf(t, a.Base))["roost_rooms_nodes_silent"]; n != 2 {
		t.Errorf("%v nodes are silent by the metric", n)
	}
	for i := range 40 {
		if at := pinRoom(t, a, fmt.Sprint("room-", i), 2); at.Node.ID != "a" && at.Node.ID != "b" {
			t.Errorf("a room went to %s", at.Node.ID)
		}
	}
	for _, p := range []*proc{other, none} {
		p.Signal(syscall.SIGTERM)
		p.Exits(exitOK)
	}
	agree(t, a, b)
	other = agent(t, "other", append(right, "--join", a.Gossip)...)
	agree(t, a, b, other)
	silent(a)
	a.Logs("all live nodes use this store again")
	tries := 0
	eventually(t, func() error {
		tries++
		room := fmt.Sprint("again-", tries)
		at, err := a.ResolveRoom(t.Context(), room, affinity.Demand{Size: 2})
		if err == nil && at.Node.ID != "other" {
			err = fmt.Errorf("%s went to %s", room, at.Node.ID)
		}
		return err
	})
}
