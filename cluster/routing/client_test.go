package routing_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/tablewire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A routing client has the same table and members as its agent after each change.
func TestFollows(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		none := w.follow("nowhere")
		if _, err := none.Place("key"); !errors.Is(err, routing.ErrNotReady) || none.Partition("key") != 0 || len(none.Owners("key", 2)) > 0 {
			t.Errorf("before the first table: %v", err)
		}
		f := w.follow("a")
		w.ready(f)
		same := func(after string) {
			t.Helper()
			w.c.WaitAgreed(10 * time.Second)
			w.await(after, 100*time.Millisecond, func() bool { return differ(f, w.c.Agent("a")) == "" })
		}
		same("the start")
		w.c.StartWith("d", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Weight, cfg.Zone, cfg.Labels, cfg.Capacity = 200, "z1", map[string]string{"disk": "ssd"}, 7
		}))
		same("a join")
		if err := w.c.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		same("a drain")
		if m, ok := f.Member("b"); !ok || m.State != lease.Draining {
			t.Errorf("b is %+v", m)
		}
		w.c.Crash("c")
		same("a crash")
		w.c.Restart("d")
		same("a restart")
		w.c.Leave("d")
		same("a leave")
		if err := w.c.Agent("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.await("no member may own anything", time.Second, func() bool {
			_, err := f.Place("key")
			return errors.Is(err, routing.ErrNoMembers)
		})
		if err := w.c.Agent("b").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		same("an undrain")
	})
}

// With handoff, a lookup returns the member that still runs the partition, until the next owner runs it.
func TestFollowsHandoff(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		for _, id := range w.c.IDs() {
			agent := w.c.Agent(id)
			go func() { // the handler needs time to stop
				_ = agent.RunOwned(t.Context(), slowly)
			}()
		}
		w.c.WaitAgreed(20 * time.Second)
		f := w.follow("a")
		w.ready(f)
		w.c.StartWith("d")
		overrides := 0
		for range 3000 {
			time.Sleep(time.Millisecond)
			s := w.c.Agent("a").Snapshot()
			if s.Table.Digest() != f.Table().Digest() {
				continue
			}
			for p, m := range s.Runners() {
				time.Sleep(50 * time.Microsecond)
				if got, ok := f.OwnerOf(p); ok && got.ID == m.ID && got.ID != must(f.Table().Owner(p)) {
					overrides++
				}
			}
		}
		w.c.WaitAgreed(20 * time.Second)
		w.await("all agree again", time.Second, func() bool { return differ(f, w.c.Agent("a")) == "" })
		if overrides == 0 {
			t.Error("no lookup named a member that ran a partition of another one")
		}
	}, func(cfg *cluster.Config) { cfg.Handoff = 6 * time.Second })
}

// If an agent ends, hangs or becomes isolated, the client follows another agent within about a second. No lookup fails
// in the meantime.
func TestFailover(t *testing.T) {
	for name, problem := range map[string]func(w *web, host string){
		"ends":   func(w *web, host string) { w.c.Crash(host) },
		"leaves": func(w *web, host string) { w.c.Leave(host) },
		"hangs":  func(w *web, host string) { w.hold(host) },
		"isolated": func(w *web, host string) {
			w.c.Split([]string{host}, others(w.c.IDs(), host))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWeb(t, func(t *testing.T, w *web) {
				f := w.follow("a", "b", "c")
				w.ready(f)
				host, _, _ := strings.Cut(f.Status().Agent, ":")
				time.Sleep(10 * time.Second)
				if age := f.Age(); age > time.Second {
					t.Errorf("at rest the table is %v old", age)
				}
				most, began := 1200*time.Millisecond, time.Now()
				problem(w, host)
				if name == "isolated" {
					most = 15 * time.Second // until the agent has noticed
				}
				w.await("another agent is followed", most, func() bool {
					if _, err := f.Place("key"); err != nil {
						t.Fatalf("after %v: %v", time.Since(began), err)
					}
					s := f.Status()
					return s.Agent != "" && s.Agent != host+":8401" && !s.Stale
				})
				t.Logf("another agent after %v", time.Since(began))
				w.await("no trouble any more", time.Second, func() bool { return f.Status().Err == nil })
				next, _, _ := strings.Cut(f.Status().Agent, ":")
				w.await("the table of the others", 15*time.Second, func() bool { return differ(f, w.c.Agent(next)) == "" })
				if name == "hangs" {
					w.release(host)
				}
				w.c.Heal()
				w.c.WaitAgreed(30 * time.Second)
				w.await("all agree", 2*time.Second, func() bool { return differ(f, w.c.Agent(next)) == "" })
			}, func(cfg *cluster.Config) { cfg.MinMembers = 2 })
		})
	}
}

// stuck is a strategy whose Assign does not return while hold is set.
type stuck struct {
	placement.Strategy
	hold *atomic.Pointer[chan struct{}]
}

func (s stuck) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if held := s.hold.Load(); held != nil {
		<-*held
	}
	return s.Strategy.Assign(nodes, partitions)
}

// A stalled agent does not confirm its table, so the client follows another agent. A client that knows no other agent
// keeps its table, and its status says why.
func TestStalledAgent(t *testing.T) {
	holds := map[string]*atomic.Pointer[chan struct{}]{"a": {}, "b": {}, "c": {}}
	inWeb(t, func(t *testing.T, w *web) {
		f := w.follow("a", "b")
		w.ready(f)
		host, _, _ := strings.Cut(f.Status().Agent, ":")
		alone := w.follow(host)
		w.ready(alone)
		released := make(chan struct{})
		release := sync.OnceFunc(func() { holds[host].Store(nil); close(released) })
		defer release()
		holds[host].Store(&released)
		if err := w.c.Agent("c").SetWeight(50); err != nil {
			t.Fatal(err)
		}
		w.await("another agent is followed", w.c.Agent("c").Config().LeaseTTL+2*time.Second, func() bool {
			s := f.Status()
			return s.Agent != "" && s.Agent != host+":8401" && s.Err == nil
		})
		time.Sleep(30 * time.Second)
		s := alone.Status()
		if _, err := alone.Place("key"); err != nil || s.Agent != "" || s.Age < 20*time.Second {
			t.Errorf("%v, %+v", err, s)
		}
		if s.Err == nil || !strings.Contains(s.Err.Error(), "the agent's loop has been stuck for ") {
			t.Errorf("its error is %v", s.Err)
		}
		release()
		w.await("the agent is followed again", 30*time.Second, func() bool {
			s := alone.Status()
			return s.Agent != "" && !s.Stale && s.Err == nil && alone.Table().Digest() == f.Table().Digest()
		})
		w.c.WaitAgreed(30 * time.Second)
	}, func(cfg *cluster.Config) {
		cfg.Strategy = stuck{placement.Rendezvous(), holds[cfg.ID]}
	})
}

// If no agent answers, the client keeps its table, the table's age grows, and the error names each agent. The client
// asks the agents less and less often. When an agent is back, the client soon follows it.
func TestNoAgent(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		f := w.follow("a", "b")
		w.ready(f)
		var asked atomic.Int64
		busy := func(rw http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			rw.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(rw, `{"error":"the agent already has 1024 event streams, which is the maximum","code":"busy"}`)
		}
		w.answer("a", busy)
		w.answer("b", busy)
		w.c.Crash("a")
		w.c.Crash("b")
		time.Sleep(time.Minute)
		s := f.Status()
		if _, err := f.Place("key"); err != nil || s.Agent != "" || s.Age < 50*time.Second || s.Err == nil {
			t.Errorf("%v, %+v", err, s)
		}
		for _, host := range []string{"a", "b"} {
			if !strings.Contains(s.Err.Error(), "the agent at "+host+":8401: the agent already has 1024 event streams, which is the maximum") {
				t.Errorf("no word of %s in %v", host, s.Err)
			}
		}
		if n := asked.Load(); n < 40 || n > 150 {
			t.Errorf("asked %d times within a minute", n)
		}
		w.serve("b", clusterServer(w.c.Agent("c")))
		w.await("c is followed", 3*time.Second+300*time.Millisecond, func() bool { return f.Status().Agent == "b:8401" })
		if s := f.Status(); s.Err != nil || s.Age > time.Second {
			t.Errorf("%+v", s)
		}
	})
}

// If an agent's response is not a valid stream, or if the stream contradicts itself, the client ignores it and follows
// another agent.
func TestStrangeAgents(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"elsewhere": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://a:8401"+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"a page":           func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, "<html>") },
		"no table":         sends(": keep-alive\n\n"),
		"no JSON":          sends("event: update\ndata: {\n\n"),
		"a change first":   sends("event: update\ndata: {\"version\":1,\"digest\":\"0000000000000001\",\"moved\":[]}\n\n"),
		"another digest":   sends("event: update\ndata: {\"digest\":\"0000000000000001\",\"table\":{\"format\":1,\"partitions\":1,\"strategy\":\"rendezvous\",\"digest\":\"0000000000000001\",\"nodes\":[],\"owners\":[\"\"]}}\n\n"),
		"another strategy": sends("event: update\ndata: {\"table\":{\"format\":1,\"partitions\":-1}}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			inWeb(t, func(t *testing.T, w *web) {
				w.answer("strange", h)
				f := w.follow("strange")
				time.Sleep(10 * time.Second)
				if s := f.Status(); f.Table() != nil || s.Err == nil || !strings.Contains(s.Err.Error(), "strange:8401") {
					t.Errorf("%+v", s)
				}
				w.ready(w.follow("strange", "a"))
			})
		})
	}
}

// The changes from Watch always add up to the client's table and members, even if the client switches to another agent.
func TestWatch(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		f := w.follow("a", "b", "c")
		owners, members := make(map[int]lease.NodeID), make(map[lease.NodeID]bool)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for b := range f.Watch(t.Context()) {
				if b.Full {
					for p := range f.Table().Partitions() {
						owners[p] = must(f.Table().Owner(placement.Partition(p)))
					}
				}
				for _, m := range b.Moved {
					if owners[int(m.Partition)] != m.From {
						t.Errorf("partition %d moves from %s, was at %s", m.Partition, m.From, owners[int(m.Partition)])
					}
					owners[int(m.Partition)] = m.To
				}
				for _, id := range b.Left {
					delete(members, id)
				}
				for _, id := range b.Joined {
					members[id] = true
				}
			}
		}()
		w.ready(f)
		time.Sleep(time.Second)
		host, _, _ := strings.Cut(f.Status().Agent, ":")
		w.c.StartWith("d")
		w.c.WaitAgreed(10 * time.Second)
		w.c.Crash(host)
		w.c.WaitAgreed(20 * time.Second)
		time.Sleep(2 * time.Second)
		_ = f.Close()
		<-ended
		for p, id := range owners {
			if got := must(f.Table().Owner(placement.Partition(p))); got != id {
				t.Errorf("partition %d is at %s, by the changes at %s", p, got, id)
			}
		}
		if len(owners) != partitions || len(members) != 3 || members[lease.NodeID(host)] {
			t.Errorf("%d partitions, members %v without %s", len(owners), members, host)
		}
	})
}

// Start refuses an invalid configuration, and the error says why.
func TestConfig(t *testing.T) {
	for want, cfg := range map[string]routing.Config{
		"name the HTTP address of at least one agent":  {},
		"\"http://\" is neither host:port":             {Agents: []string{"a:1", "http://"}},
		"IdleTimeout is 1ms; it must be 300ms to 3m0s": {Agents: []string{"a:1"}, IdleTimeout: time.Millisecond},
		"which would end every stream":                 {Agents: []string{"a:1"}, HTTP: &http.Client{Timeout: time.Second}},
	} {
		if f, err := routing.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", f, err, want)
		}
	}
}

func others(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
}

// If a member is gone but the table still names it as an owner, lookups still return its address.
func TestGoneOwner(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		table := tableOf(t, 8, "n1", "n2")
		n1 := &tablewire.Member{Profile: lease.Profile{ID: "n1", APIAddr: "n1:1"}, State: lease.Active}
		n2 := &tablewire.Member{Profile: lease.Profile{ID: "n2", APIAddr: "n2:1"}, State: lease.Active}
		both := &tablewire.State{Table: table, Members: []*tablewire.Member{n1, n2}}
		one := &tablewire.State{Table: table, Members: []*tablewire.Member{n2}}
		w.answer("agent", sends(event(t, nil, both)+event(t, both, one)))
		f := w.follow("agent")
		w.ready(f)
		w.await("n1 has gone", time.Second, func() bool { return len(f.Members()) == 1 })
		for p := range placement.Partition(8) {
			if m, ok := f.OwnerOf(p); !ok || m.APIAddr != string(m.ID)+":1" {
				t.Errorf("partition %d is at %+v", p, m)
			}
		}
	})
}

// The client has a current table. It replaces this table with a stale table only after it has asked every agent.
func TestStaleAgentIsTheLast(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		good, stale := tableOf(t, 8, "n1", "n2"), tableOf(t, 8, "n1")
		w.answer("good", sends(event(t, nil, &tablewire.State{Table: good})))
		w.answer("stale", sends(event(t, nil, &tablewire.State{Table: stale, Stale: true})))
		w.answer("hung", http.NotFound)
		w.hold("hung")
		f := w.follow("good", "stale", "hung")
		w.await("the good agent is followed", 10*time.Second, func() bool { return f.Status().Agent == "good:8401" })
		w.answer("good", http.NotFound)
		for range 1900 { // the client gives up on the hung agent only later
			time.Sleep(time.Millisecond)
			if f.Table().Digest() != good.Digest() {
				t.Fatalf("a stale table is shown, and an agent was not asked: %+v", f.Status())
			}
		}
		w.await("the stale agent is followed", 10*time.Second, func() bool { return f.Status().Agent == "stale:8401" })
		if f.Table().Digest() != stale.Digest() || f.Status().Err == nil {
			t.Errorf("%s, %+v", f.Table().Digest(), f.Status())
		}
	})
}

// An agent of another cluster may get an old agent's address, for example the address of a pod. The client does not use
// the table of that agent.
func TestOtherCluster(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		f := w.follow("a", "b")
		w.ready(f)
		digest := f.Table().Digest()
		foreign := sends(event(t, nil, &tablewire.State{Cluster: "db", Table: tableOf(t, 8, "x")}))
		w.answer("a", foreign)
		w.answer("b", foreign)
		time.Sleep(time.Minute)
		if s := f.Status(); f.Table().Digest() != digest || s.Agent != "" || s.Err == nil ||
			!strings.Contains(s.Err.Error(), `a:8401 belongs to cluster "db", not to "roost"`) {
			t.Errorf("%s, %+v", f.Table().Digest(), s)
		}
		w.serve("b", clusterServer(w.c.Agent("b")))
		w.await("b is followed", 10*time.Second, func() bool { return f.Status().Agent == "b:8401" && f.Status().Err == nil })
	})
}

// If the first table is stale, the client may later follow an agent of another cluster, because the stale table may
// come from an isolated agent that does not belong to the client's cluster.
func TestStaleOtherCluster(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		w.answer("a", sends(event(t, nil, &tablewire.State{Cluster: "db", Table: tableOf(t, 8, "x"), Stale: true})))
		w.answer("b", http.NotFound)
		f := w.follow("a", "b")
		w.await("the agent that is cut off is followed", 10*time.Second, func() bool { return f.Status().Agent == "a:8401" })
		w.serve("b", clusterServer(w.c.Agent("b")))
		w.await("b is followed", 20*time.Second, func() bool { return f.Status().Agent == "b:8401" && f.Status().Err == nil })

		// The first table is stale, but the same stream later sends a current table. This table decides which cluster
		// the client follows.
		table := tableOf(t, 8, "n1")
		stale, present := &tablewire.State{Cluster: "roost", Table: table, Stale: true}, &tablewire.State{Cluster: "roost", Table: table}
		w.answer("c", sends(event(t, nil, stale)+event(t, stale, present)))
		w.answer("d", http.NotFound)
		f = w.follow("c", "d")
		w.await("c is followed", 10*time.Second, func() bool { return f.Status().Agent == "c:8401" && !f.Status().Stale })
		foreign := sends(event(t, nil, &tablewire.State{Cluster: "db", Table: tableOf(t, 8, "x")}))
		w.answer("d", foreign)
		w.answer("c", http.NotFound)
		time.Sleep(10 * time.Second)
		if f.Table().Digest() != table.Digest() || f.Status().Agent != "" {
			t.Errorf("%+v", f.Status())
		}
	})
}

// If the tables of all agents are stale, the client logs one warning.
func TestAllAreStale(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		var log agentproc.Log
		table := tableOf(t, 8, "n1")
		for _, host := range []string{"a", "b"} {
			w.answer(host, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprint(rw, event(t, nil, &tablewire.State{Table: table, Stale: true}))
				for r.Context().Err() == nil {
					_ = http.NewResponseController(rw).Flush()
					time.Sleep(300 * time.Millisecond)
					_, _ = fmt.Fprint(rw, ":\n\n")
				}
			})
		}
		f := w.followAs(routing.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a", "b")
		w.ready(f)
		time.Sleep(time.Minute)
		if n := strings.Count(log.String(), "no agent has a current table"); n != 1 || !f.Status().Stale || f.Age() > time.Second {
			t.Errorf("%d lines, %+v:\n%s", n, f.Status(), log.String())
		}
	})
}

// The password in an agent's URL never appears in log lines, errors or the status.
func TestPasswordStaysSecret(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		var log agentproc.Log
		transport := &http.Transport{DialContext: w.dial}
		f, err := routing.Start(t.Context(), routing.Config{
			Agents: []string{"http://me:correct-horse@a:8401"},
			HTTP:   &http.Client{Transport: transport},
			Log:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.CloseIdleConnections()
		defer f.Close()
		w.ready(f)
		followed := f.Status()
		w.answer("a", http.NotFound)
		time.Sleep(5 * time.Second)
		_, resolved := f.Resolve(t.Context(), "room", 2)
		said := fmt.Sprintf("%+v %+v %v %s", followed, f.Status(), resolved, log.String())
		if strings.Contains(said, "correct-horse") || !strings.Contains(said, "a:8401") {
			t.Error(said)
		}
	})
}

// A table may take longer than twice the idle timeout to arrive, as long as bytes keep arriving.
func TestSlowTable(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		text := event(t, nil, &tablewire.State{Table: tableOf(t, 4096, "n1")})
		w.answer("slow", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for piece := range slices.Chunk([]byte(text), 1000) {
				_, _ = rw.Write(piece)
				_ = http.NewResponseController(rw).Flush()
				time.Sleep(300 * time.Millisecond)
			}
			<-r.Context().Done()
		})
		w.ready(w.follow("slow"))
	})
}
