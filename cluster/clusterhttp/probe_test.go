package clusterhttp

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// hooked is a strategy that calls hook before it assigns.
type hooked struct {
	placement.Strategy
	hook func()
}

func (h hooked) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	h.hook()
	return h.Strategy.Assign(nodes, partitions)
}

// A fenced node whose seed is paused is in the phase joining until the seed answers.
func TestStuckSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a")
		c.Start("b") // its seed is a
		c.WaitAgreed(3 * time.Second)
		h := newAPI(c.Agent("b"), Options{Log: quiet})
		c.Pause("a")
		c.Pause("b")
		time.Sleep(2 * h.ttl)
		c.Resume("b")
		time.Sleep(time.Minute)
		expect(t, do(h, "GET", "/readyz", ""), 503, `rejoining: a seed accepts connections but does not answer: `)
		expect(t, do(h, "GET", "/v1/owned", ""), 200, `"partitions":[]`)
		c.Resume("a")
		c.WaitAgreed(20 * time.Second)
		expect(t, do(h, "GET", "/readyz", ""), 200, "ready")
	})
}

// stallable returns a cluster of a and b, and the API of a. After stall, the loop of a stands still until release is
// called.
func stallable(t *testing.T) (c *clustertest.Cluster, h *api, stall, release func()) {
	t.Helper()
	var hold atomic.Pointer[chan struct{}]
	c = clustertest.New(t, clustertest.Options{})
	c.Start("b")
	h = newAPI(c.StartWith("a", clustertest.WithConfig(func(cfg *cluster.Config) {
		cfg.Strategy = hooked{placement.Rendezvous(), func() {
			if c := hold.Load(); c != nil {
				<-*c
			}
		}}
	})), Options{Log: quiet})
	c.WaitAgreed(5 * time.Second)
	released := make(chan struct{})
	stall = func() {
		hold.Store(&released)
		if err := c.Agent("b").SetWeight(50); err != nil {
			t.Fatal(err)
		}
	}
	return c, h, stall, sync.OnceFunc(func() { hold.Store(nil); close(released) })
}

// If a strategy does not return, /healthz fails after one TTL, until the strategy returns. Reads continue.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h, stall, release := stallable(t)
		defer release()
		get := func(path string) *httptest.ResponseRecorder { return do(h, "GET", path, "") }
		stall()
		expect(t, get("/healthz"), 200, "ok")
		time.Sleep(h.ttl - time.Second)
		expect(t, get("/healthz"), 200, "ok")
		time.Sleep(2 * time.Second)
		expect(t, get("/healthz"), 503, `"code":"stalled"`)
		expect(t, get("/readyz"), 503, `"state":"joining"`)
		expect(t, get("/v1/place?key=x"), 200, `"owner"`)
		expect(t, get("/v1/owned"), 200, `"partitions":[]`)

		release()
		time.Sleep(100 * time.Millisecond)
		expect(t, get("/healthz"), 200, "ok")
		c.WaitAgreed(3 * h.ttl)
		expect(t, get("/readyz"), 200, "ready")
	})
}

// A stalled agent cannot tell whether its table is current, so it marks lookups as stale and ends the streams of
// routing clients.
func TestStalledTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h, stall, release := stallable(t)
		defer release()
		client := serve(t, NewServer(h)).client(t)
		follow := func() (ended chan time.Time) {
			resp, err := client.send(t.Context(), "GET", "/v1/table?keep_alive=300ms", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			ended = make(chan time.Time, 1)
			go func() {
				_, _ = io.Copy(io.Discard, resp.Body)
				ended <- time.Now()
			}()
			return ended
		}
		looksUp := func(stale bool) {
			t.Helper()
			for _, path := range []string{"/v1/place?key=x", "/v1/owners?key=x", "/v1/partitions"} {
				if got := do(h, "GET", path, ""); got.Code != 200 || strings.Contains(got.Body.String(), `"stale":true`) != stale {
					t.Errorf("%s: %d %.200s, want stale: %v", path, got.Code, got.Body, stale)
				}
			}
		}
		ended := follow()
		looksUp(false)

		stall()
		began := time.Now()
		select {
		case at := <-ended:
			if took := at.Sub(began); took < h.ttl-time.Second || took > h.ttl+time.Second {
				t.Errorf("the stream ended after %v", took)
			}
		case <-time.After(time.Minute):
			t.Error("the stream of a routing client goes on")
		}
		looksUp(true)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := client.send(soon, "GET", "/v1/table", nil)
		if expectProblem(t, err, 503, CodeStalled, "the agent's loop has been stuck"); err == nil {
			_ = resp.Body.Close()
		}

		release()
		c.WaitAgreed(3 * h.ttl)
		looksUp(false)
		follow()
	})
}

// A node that sees too few members says so. It answers lookups with its last table, if it has one.
func TestIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.MinMembers = 2 }})
		h := newAPI(c.StartWith("a"), Options{Log: quiet})
		get := func(path string) *httptest.ResponseRecorder { return do(h, "GET", path, "") }
		time.Sleep(30 * time.Second)
		expect(t, get("/readyz"), 503, `"state":"isolated"`)
		expect(t, get("/readyz"), 503, "too few members: it sees 1, itself included, and needs 2")
		expect(t, get("/healthz"), 200, "ok")
		expect(t, get("/v1/place?key=x"), 503, `"code":"not_ready"`)

		c.Start("b")
		c.WaitAgreed(3 * time.Second)
		expect(t, get("/readyz"), 200, "ready")
		if fresh := get("/v1/place?key=x"); fresh.Code != 200 || strings.Contains(fresh.Body.String(), "stale") {
			t.Errorf("an active node answers %s", fresh.Body)
		}
		for _, path := range []string{"/v1/owners?key=x", "/v1/partitions"} {
			if fresh := get(path); fresh.Code != 200 || strings.Contains(fresh.Body.String(), "stale") {
				t.Errorf("%s of an active node: %s", path, fresh.Body)
			}
		}

		c.Split([]string{"a"}, []string{"b"})
		time.Sleep(2 * h.ttl)
		expect(t, get("/readyz"), 503, `"state":"isolated"`)
		expect(t, get("/v1/place?key=x"), 200, `"stale":true`)
		expect(t, get("/v1/owners?key=x"), 200, `"stale":true`)
		expect(t, get("/v1/partitions"), 200, `"stale":true`)
		expect(t, get("/v1/owned"), 200, `"partitions":[]`)
		expect(t, get("/v1/stats"), 200, `"state":"isolated"`)
		expect(t, get("/v1/stats"), 200, `"holds":[{"cause":"isolated","reason":"too few members: it sees 1`)
		expect(t, get("/v1/stats"), 200, `"min_members":2,"split":"continue"`)
		expect(t, get("/v1/stats"), 200, `"fences":0`)
		expect(t, get("/v1/members"), 200, `"converged":false`)
	})
}

// The agent's doctor finds what changes between its two looks, and what is wrong in both. It serves a limited
// number of clients at a time, and stops when the agent stops.
func TestDoctor(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		complaints := func(during func()) (found []string) {
			t.Helper()
			began := time.Now()
			go during()
			d, err := client.Doctor(t.Context(), 5*time.Second)
			if err != nil || d.Self != "a" || d.OverMS != 5000 || time.Since(began) != 5*time.Second {
				t.Fatalf("%+v, %v after %v", d, err, time.Since(began))
			}
			for _, check := range d.Checks {
				if check.Status != doctor.OK {
					found = append(found, check.Status.String()+" "+check.Name+" "+check.Finding)
				}
			}
			return found
		}
		if found := complaints(func() {}); len(found) > 0 {
			t.Errorf("a healthy cluster: %q", found)
		}
		if lost := complaints(func() { c.Crash("b") }); len(lost) != 1 || !strings.HasPrefix(lost[0], "warn members lost: b crashed ") {
			t.Errorf("after a crash: %q", lost)
		}

		var wait sync.WaitGroup
		for i := range maxExamined {
			wait.Go(func() { // each client has its own examination
				if _, err := client.Doctor(t.Context(), time.Second+time.Duration(i)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		_, err := client.Doctor(t.Context(), 0)
		expectProblem(t, err, 503, CodeBusy, "too many clients")
		wait.Wait()
		for i := range 2 { // the first client starts an examination, the second shares it
			wait.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_, err := client.Doctor(t.Context(), 4*time.Second)
				expectProblem(t, err, 503, CodeClosed, "")
			})
		}
		time.Sleep(time.Second)
		c.Leave("a")
		wait.Wait()
	})
}

// Any number of dashboard pages share the agent's examinations. Each page requests an examination of 2 s, pauses for 1
// s, and repeats this. All pages also request an examination of 1 s at nearly the same time.
func TestDoctorForPages(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		examine := func(over time.Duration) {
			began := time.Now()
			d, err := client.Doctor(t.Context(), over)
			if took := time.Since(began); err != nil || d.OverMS != over.Milliseconds() || took < over/2 || took > over {
				t.Errorf("%v after %v, of %v", err, took, over)
			}
		}
		began := time.Now()
		const pages = 48
		var wait sync.WaitGroup
		for i := range pages {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Second / pages)
				examine(200 * time.Millisecond)
				for time.Since(began) < 20*time.Second {
					time.Sleep(time.Second)
					examine(2 * time.Second)
				}
			})
			wait.Go(func() {
				time.Sleep(10*time.Second + time.Duration(i)*10*time.Millisecond) // when a change arrives over the streams
				examine(time.Second)
			})
		}
		wait.Wait()
	})
}

// Two clients share an examination. If the client that started it disconnects, the other client still gets its result.
func TestDoctorWithoutLeader(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := client.Doctor(gone, 4*time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		began := time.Now()
		d, err := client.Doctor(t.Context(), 4*time.Second)
		if took := time.Since(began); err != nil || len(d.Checks) == 0 || took < 3*time.Second {
			t.Errorf("%v, %v after %v", d, err, took)
		}
		wait.Wait()
	})
}

// A node that was fenced is ready as soon as it answers lookups.
func TestReadyAfterFence(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		c.Pause("a")
		time.Sleep(10 * time.Second)
		c.Resume("a")
		ready := false
		for range 3000 {
			time.Sleep(time.Millisecond)
			if ready = do(h, "GET", "/readyz", "").Code == 200; ready {
				break
			}
		}
		if place := do(h, "GET", "/v1/place?key=a", ""); !ready || place.Code != 200 {
			t.Errorf("ready %t, and a lookup answers %d", ready, place.Code)
		}
	})
}
