package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/follow"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/placement"
)

var followersOf = flag.Int("followers", 200, "followers in TestFollowers, and ten times its changes")

// A crowd of followers of three agents sees a hundred changes. One of the agents is killed
// half-way: no look-up of any follower fails, and all of them end with the table of the agents (S7.1).
func TestFollowers(t *testing.T) {
	t.Parallel()
	crowd, changes := *followersOf, *followersOf/10
	a := agent(t, "a")
	agents := []*proc{a, agent(t, "b", "--join", a.Gossip), agent(t, "c", "--join", a.Gossip)}
	agree(t, agents...)
	before := memoryOf(t, agents)

	x := &sightings{first: make(map[placement.Digest]time.Time)}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	cfg := follow.Config{Log: slog.New(slog.DiscardHandler)}
	for _, p := range agents {
		cfg.Agents = append(cfg.Agents, p.Addrs.HTTP)
		watching.Go(func() {
			for b, err := range p.Events(ctx) {
				if err == nil {
					x.agentHas(b.Digest)
				}
			}
		})
	}
	followers := make([]*follow.Follower, crowd)
	for i := range followers {
		f, err := follow.Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		followers[i] = f
	}
	for _, f := range followers {
		<-f.Ready()
		watching.Go(func() {
			for range f.Watch(ctx) {
				x.followerHas(f.Table().Digest())
			}
		})
	}
	after := memoryOf(t, agents)
	x.begin()
	for change := range changes {
		if change == changes/2 {
			if err := a.Kill(); err != nil {
				t.Fatal(err)
			}
			agents = agents[1:]
		}
		// The share of one agent only grows, so no table comes again.
		if _, err := agents[0].SetWeight(ctx, uint32(100*math.Pow(1.08, float64(change+1)))); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(250 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			for _, f := range followers[:10] {
				if _, err := f.Place("key"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	agree(t, agents...)
	table, err := agents[0].Partitions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range followers {
		eventually(t, func() error {
			if s := f.Status(); f.Table().Digest() != table.Digest || s.Agent == a.Addrs.HTTP || s.Err != nil {
				return fmt.Errorf("%+v, with table %s, want %s", s, f.Table().Digest(), table.Digest)
			}
			return nil
		})
	}
	late := x.sorted()
	if len(late) < crowd*changes/4 {
		t.Errorf("%d sightings of tables", len(late))
	}
	t.Logf("%d followers, %d changes: behind the first agent by %v, p99 %v, at most %v; memory of an agent: %d kB before, %d kB with them, %d kB for each of its own",
		crowd, changes, late[len(late)/2], late[len(late)*99/100], late[len(late)-1], before>>10, after>>10, (after-before)*int64(len(cfg.Agents))/int64(crowd)>>10)
}

// sightings are when tables were seen: first by the streams of agents, then by followers.
type sightings struct {
	mu    sync.Mutex
	first map[placement.Digest]time.Time
	late  []time.Duration
}

// begin forgets what followers saw.
func (x *sightings) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.late = nil
}

func (x *sightings) agentHas(d placement.Digest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.first[d]; !ok {
		x.first[d] = time.Now()
	}
}

func (x *sightings) followerHas(d placement.Digest) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if first, ok := x.first[d]; ok {
		x.late = append(x.late, now.Sub(first))
	} else {
		x.first[d] = now
	}
}

func (x *sightings) sorted() []time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	slices.Sort(x.late)
	return x.late
}

// memoryOf returns the mean of the most memory that agents ever had, in bytes.
func memoryOf(t *testing.T, agents []*proc) (mean int64) {
	t.Helper()
	for _, a := range agents {
		mean += memory(t, a) / int64(len(agents))
	}
	return mean
}

// roost proxy sends requests to the servers of two agents by their keys, waits for agents at its start,
// and ends at SIGTERM (S7.2).
func TestProxy(t *testing.T) {
	t.Parallel()
	app := func(name string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, name, r.URL.Path)
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	a := agent(t, "a", "--api-addr", app("a"))
	b := agent(t, "b", "--api-addr", app("b"), "--join", a.Gossip)
	agree(t, a, b)
	cmd := exec.Command(agenttest.Binary(t), "proxy", "--key-from", "path:2", "--listen", "127.0.0.1:0", "--agents", a.Addrs.HTTP+","+b.Addrs.HTTP)
	cmd.Env = agentproc.Environ()
	proxy := agenttest.Start(t, cmd)
	addr := ""
	eventually(t, func() error {
		found := regexp.MustCompile(`msg="proxy running" listen=(\S+)`).FindStringSubmatch(proxy.Log.String())
		if found == nil {
			return errors.New(proxy.Log.String())
		}
		addr = found[1]
		return nil
	})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	seen := make(map[string]bool)
	for i := range 50 {
		key := fmt.Sprint("room-", i)
		placed, err := a.Place(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { // the first table may be on its way
			resp, err := client.Get("http://" + addr + "/rooms/" + key)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if want := string(placed.Owner.ID) + "/rooms/" + key; string(body) != want {
				return fmt.Errorf("%s %q, want %s: %w", resp.Status, body, want, err)
			}
			return nil
		})
		seen[string(placed.Owner.ID)] = true
	}
	if len(seen) != 2 {
		t.Errorf("requests went to %v", seen)
	}
	if err := proxy.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-proxy.Done()
	if code := proxy.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, proxy.Log)
	}
}

// What roost proxy cannot do, it says at once.
func TestProxyUsage(t *testing.T) {
	token := secretFile(t, "0123456789abcdef0123456789abcdef")
	for want, args := range map[string][]string{
		"--key-from is missing":             {},
		"want path:N, query:NAME":           {"--key-from", "body"},
		"the network could read the token":  {"--key-from", "path:1", "--agents", "10.0.0.1:8401", "--token-file", token},
		"is neither host:port nor the URL":  {"--key-from", "path:1", "--agents", "http://"},
		"--listen 203.0.113.9:1: cannot li": {"--key-from", "path:1", "--listen", "203.0.113.9:1"},
	} {
		if code, out, fault := roost(t, append([]string{"proxy"}, args...)...); code == exitOK || out != "" || !strings.Contains(fault, want) {
			t.Errorf("%v: %d %q %q", args, code, out, fault)
		}
	}
}
