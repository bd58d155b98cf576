package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// member is a node with a resolver.
type member struct {
	agent *cluster.Agent
	rooms *affinity.Resolver
}

// endings are the ways in which a node can end.
var endings = map[string]func(context.Context, member) error{
	"crash":                 func(_ context.Context, m member) error { m.rooms.Kill(); return m.agent.Close() },
	"Leave":                 func(ctx context.Context, m member) error { return m.agent.Leave(ctx) },
	"rooms.Close and Leave": func(ctx context.Context, m member) error { return errors.Join(m.rooms.Close(), m.agent.Leave(ctx)) },
}

// ended contains how long it took until other nodes had taken over the rooms of a node that ended.
type ended struct {
	named      time.Duration // until all other nodes name another one
	failedOver time.Duration // until a room that nobody asks for is failed over
	late       int           // answers that name a node which has left, as the one who answers knew
	early      int           // answers that name another node while the room is still hosted
}

// endOf ends a node that hosts two rooms, and watches what the other nodes answer.
func endOf(t *testing.T, of lease.NodeID, how string, all map[lease.NodeID]member) (e ended) {
	t.Helper()
	others := make(map[lease.NodeID]member)
	var any member
	for id, m := range all {
		if id != of {
			others[id], any = m, m
		}
	}
	asked, unasked := fmt.Sprint("asked-", of, time.Now().UnixNano()), fmt.Sprint("unasked-", of, time.Now().UnixNano())
	var hosted *affinity.Hosting
	for _, room := range []string{unasked, asked} {
		_, err := any.rooms.Resolve(t.Context(), room, affinity.Demand{Size: 2})
		if err == nil {
			_, err = any.rooms.Move(t.Context(), room, of)
		}
		if err == nil {
			hosted, err = all[of].rooms.Host(t.Context(), room, affinity.Demand{Size: 2})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	began := time.Now()
	note := func(at *time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		*at = max(*at, time.Since(began))
	}
	for _, m := range others {
		wait.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
				_, live := m.agent.Member(of)
				a, err := m.rooms.Resolve(ctx, asked, affinity.Demand{Size: 2})
				switch {
				case err == nil && a.Node != of:
					if note(&e.named); !lost(hosted) {
						mu.Lock()
						e.early++
						mu.Unlock()
					}
					return
				case err == nil && !live:
					mu.Lock()
					e.late++
					mu.Unlock()
				}
			}
			note(&e.named)
		})
	}
	wait.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
			if a, err := any.rooms.Lookup(ctx, unasked); err == nil && a.Node != of {
				break
			}
		}
		note(&e.failedOver)
	})
	if err := endings[how](ctx, all[of]); err != nil {
		t.Errorf("%s: %v", how, err)
	}
	wait.Wait()
	return e
}

// watchEndings ends nodes in each of these ways. It also restarts the nodes of a fleet one after another, so that the
// other nodes have not run for long. It starts each node with start.
func watchEndings(t *testing.T, start func(id lease.NodeID, seeds []string) member) map[string]ended {
	t.Helper()
	all := make(map[lease.NodeID]member)
	run := func(id lease.NodeID) {
		t.Helper()
		delete(all, id)
		var seeds []string
		for _, m := range all {
			seeds = append(seeds, m.agent.Addr())
		}
		all[id] = start(id, seeds)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, m := range all {
			for len(m.agent.Members()) != len(all) || !m.agent.Converged() {
				if time.Sleep(time.Millisecond); ctx.Err() != nil {
					t.Fatalf("%s was started, and %s sees %v", id, m.agent.Config().ID, m.agent.Members())
				}
			}
		}
	}
	for _, id := range []lease.NodeID{"a", "b", "c", "d"} {
		run(id)
	}
	time.Sleep(ttl + 3*time.Second) // all are old
	took := make(map[string]ended)
	for _, how := range []string{"crash", "rooms.Close and Leave", "Leave"} {
		took[how] = endOf(t, "d", how, all)
		run("d")
		time.Sleep(ttl)
	}
	for _, how := range []string{"crash", "rooms.Close and Leave", "Leave"} {
		var worst ended
		for _, id := range []lease.NodeID{"a", "b", "c", "d"} {
			e := endOf(t, id, how, all)
			worst = ended{max(worst.named, e.named), max(worst.failedOver, e.failedOver), worst.late + e.late, worst.early + e.early}
			run(id)
		}
		took["rolling restart by "+how] = worst
	}
	for how, e := range took {
		t.Logf("%-42s another node is named after %4d ms, failed over unasked after %4d ms, late answers %d",
			how, e.named.Milliseconds(), e.failedOver.Milliseconds(), e.late)
	}
	return took
}

// A planned end must move rooms as fast as a crash, even if all other nodes have run for less than a TTL. No answer may
// name a node that has left.
func TestEndings(t *testing.T) {
	inFleet(t, "", func(t *testing.T, f *fleet) {
		took := watchEndings(t, func(id lease.NodeID, _ []string) member {
			f.Start(string(id))
			f.resolver(string(id))
			<-f.Agent(string(id)).Ready()
			return member{f.Agent(string(id)), f.rooms[string(id)]}
		})
		for how, e := range took {
			planned := how != "crash" && how != "rolling restart by crash"
			if planned && (max(e.named, e.failedOver) > 500*time.Millisecond || e.late+e.early > 0) {
				t.Errorf("%s: %+v", how, e)
			}
		}
	})
}

// The same test with real sockets and Redis. The times depend on the load of the machine, and go test -v shows them.
func TestEndingsOnRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	server := redistest.Start(t)
	took := watchEndings(t, func(id lease.NodeID, seeds []string) member {
		quiet := slog.New(slog.DiscardHandler)
		agent, err := cluster.Start(t.Context(), cluster.Config{ID: string(id), Bind: "127.0.0.1:0", Join: seeds, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close() })
		<-agent.Ready()
		redis, err := rueidisconn.Open(t.Context(), rueidisconn.Options{URL: redistest.Patient(server.URL())})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(redis, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		rooms, err := affinity.Start(agent, store, affinity.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rooms.Close() })
		return member{agent, rooms}
	})
	for how, e := range took {
		if how != "crash" && how != "rolling restart by crash" && e.late+e.early > 0 {
			t.Errorf("%s: %d answers name a node that has left, and %d another one while the room is hosted", how, e.late, e.early)
		}
	}
}

// If the application only calls Leave, the rooms end after the handlers of RunOwned, right before the other
// nodes learn of the leave. The node serves its rooms until then.
func TestLeaveEndsRoomsLast(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 2)
		home := string(f.resolve("a", "r", 2).Node)
		other := f.not(home)
		const cleanUp = 3 * time.Second
		go func() {
			_ = f.Agent(home).RunOwned(t.Context(), func(ctx context.Context, _ placement.Partition) {
				<-ctx.Done()
				time.Sleep(cleanUp)
			})
		}()
		time.Sleep(time.Second)
		began := time.Now()
		leaver := f.Agent(home)
		go func() { _ = leaver.Leave(t.Context()) }()
		for !lost(h) {
			if a := f.resolve(other, "r", 2); string(a.Node) != home {
				t.Fatalf("after %v the room is hosted, and %s says %v", time.Since(began), other, a)
			}
			time.Sleep(time.Millisecond)
		}
		wantLost(t, h, affinity.ErrClosed)
		if took := time.Since(began); took < cleanUp {
			t.Errorf("the room was lost after %v", took)
		}
		since := time.Now()
		for string(f.resolve(other, "r", 2).Node) == home {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(since); took > 200*time.Millisecond {
			t.Errorf("the room was nowhere for %v", took)
		}
		if _, err := f.rooms[home].Resolve(t.Context(), "r", affinity.Demand{}); !errors.Is(err, affinity.ErrClosed) {
			t.Errorf("the resolver of the node that has left answers %v", err)
		}
		time.Sleep(5 * time.Second)
	})
}
