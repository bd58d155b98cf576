package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/placement"
)

var clientsOf = flag.Int("clients", 50, "routing clients in TestRoutingClients; a tenth as many changes, and ten at least")

// TestRoutingClients: many routing clients of three agents see many changes, and one of the agents is killed halfway.
// No lookup of any routing client may fail, each routing client must have each change within a second of the first
// agent (p99), and all must end with the table of the agents. By default, there are 50 routing clients, because more
// would leave too little CPU time to other tests under the race detector. make long runs 200, and make routing-clients
// runs 1,000.
func TestRoutingClients(t *testing.T) {
	t.Parallel()
	crowd, changes := *clientsOf, max(10, *clientsOf/10)
	a, b, c := trio(t)
	agents := []*proc{a, b, c}
	before := memoryOf(t, agents)

	x := &sightings{at: make([]map[placement.Digest]time.Time, crowd+1)}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	cfg := routing.Config{Log: slog.New(slog.DiscardHandler)}
	for _, p := range agents {
		cfg.Agents = append(cfg.Agents, p.Addrs.HTTP)
		watching.Go(func() {
			for b, err := range p.Events(ctx) {
				if err == nil {
					x.has(crowd, b.Digest)
				}
			}
		})
	}
	clients := make([]*routing.Client, crowd)
	for i := range clients {
		f, err := routing.Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		clients[i] = f
	}
	for i, f := range clients {
		<-f.Ready()
		watching.Go(func() {
			for range f.Watch(ctx) {
				x.has(i, f.Table().Digest())
			}
		})
	}
	after, began, left := memoryOf(t, agents), time.Now(), machineFor(agents)
	lookups := 0
	for change := range changes {
		if change == changes/2 {
			if err := a.Kill(); err != nil {
				t.Fatal(err)
			}
			agents = agents[1:]
		}
		// The weight of one agent only grows, so no table occurs twice. The change is retried, because hundreds of
		// routing clients that connect at the same time reach the connection limit, and then the agent closes idle
		// connections such as this test's.
		eventually(t, func() error {
			_, err := agents[0].SetWeight(ctx, uint32(100*math.Pow(1.08, float64(change+1))))
			return err
		})
		for until := time.Now().Add(250 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			for _, f := range clients {
				if m, err := f.Place("key"); err != nil || m == nil {
					t.Fatal(err)
				}
				lookups++
			}
		}
	}
	agree(t, agents...)
	table, err := agents[0].Partitions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range clients {
		eventually(t, func() error {
			if s := f.Status(); f.Table().Digest() != table.Digest || s.Agent == a.Addrs.HTTP || s.Err != nil || !x.saw(i, table.Digest) {
				return fmt.Errorf("%+v, with table %s, want %s", s, f.Table().Digest(), table.Digest)
			}
			return nil
		})
		if !slices.Equal(f.Table().Export(0).Owners, table.Owners) {
			t.Fatal("a routing client has other owners under the digest of the agents")
		}
	}
	late, seen := x.late(began)
	if seen < changes/2 { // some merge
		t.Errorf("the agents had %d tables after %d changes", seen, changes)
	}
	if p99, most := late[len(late)*99/100], stretched(time.Second, left()); p99 > most {
		t.Errorf("a change is %v old at a routing client (p99), want %v at most: a second, and the machine was ours by %.0f %%",
			p99, most, 100*left())
	}
	t.Logf("%d routing clients, %d tables, %d lookups: behind the first agent by %v, p99 %v, at most %v, with %.0f %% of the machine",
		crowd, seen, lookups, late[len(late)/2], late[len(late)*99/100], late[len(late)-1], 100*left())
	t.Logf("memory of an agent: %d kB before, %d kB with them, %d kB for each of its own",
		before>>10, after>>10, (after-before)*int64(len(cfg.Agents))/int64(crowd)>>10)
}

// sightings records when each table was first seen by each routing client, and by any event stream of an agent (the
// last element).
type sightings struct {
	mu sync.Mutex
	at []map[placement.Digest]time.Time
}

func (x *sightings) has(who int, d placement.Digest) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at[who] == nil {
		x.at[who] = make(map[placement.Digest]time.Time)
	}
	if _, ok := x.at[who][d]; !ok {
		x.at[who][d] = now
	}
}

func (x *sightings) saw(who int, d placement.Digest) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.at[who][d]
	return ok
}

// late returns the sorted delays with which the routing clients received each table that the agents had after began,
// and the number of these tables. Changes can merge, so a routing client may skip a table. Then its delay lasts until
// the next table that it received.
func (x *sightings) late(began time.Time) (late []time.Duration, tables int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clients, agents := x.at[:len(x.at)-1], x.at[len(x.at)-1]
	inOrder := slices.SortedFunc(maps.Keys(agents), func(a, b placement.Digest) int { return agents[a].Compare(agents[b]) })
	for _, seen := range clients {
		has := time.Now() // when the routing client had this table or a later one
		for _, d := range slices.Backward(inOrder) {
			if at, ok := seen[d]; ok && at.Before(has) {
				has = at
			}
			if agents[d].After(began) {
				late = append(late, max(0, has.Sub(agents[d])))
			}
		}
	}
	slices.Sort(late)
	return late, len(late) / len(clients)
}

// machineFor starts to measure the machine's CPU time. left returns the share that has since been idle, or was used by
// this test and by live agents. Without /proc, left returns 1.
func machineFor(agents []*proc) (left func() float64) {
	ticks := func(path, after string, from, to int) (sum float64) {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), after)
		for i, field := range strings.Fields(rest) {
			if n, err := strconv.ParseFloat(field, 64); err == nil && i >= from && i < to {
				sum += n
			}
		}
		return sum
	}
	now := func() (all, ours float64) {
		ours = ticks("/proc/stat", "cpu ", 3, 5) + ticks("/proc/self/stat", ") ", 11, 13)
		for _, a := range agents {
			ours += ticks(fmt.Sprintf("/proc/%d/stat", a.PID()), ") ", 11, 13)
		}
		return ticks("/proc/stat", "cpu ", 0, 8), ours
	}
	all0, ours0 := now()
	return func() float64 {
		all, ours := now()
		if all == all0 {
			return 1
		}
		return (ours - ours0) / (all - all0)
	}
}

// stretched returns a limit for a machine that other programs may use, too. If they do, the limit grows up to fourfold.
func stretched(bar time.Duration, left float64) time.Duration {
	return time.Duration(float64(bar) / max(0.25, left))
}

// memoryOf returns the mean of the agents' peak memory, in bytes.
func memoryOf(t *testing.T, agents []*proc) (mean int64) {
	t.Helper()
	for _, a := range agents {
		mean += memory(t, a) / int64(len(agents))
	}
	return mean
}

// TestProxy: roost proxy sends requests to the servers of two agents by their keys. It waits for agents when it starts,
// and gives up on a server after --answer-within. On SIGTERM, the proxy shuts down: /readyz says so, while requests in
// progress finish.
func TestProxy(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	app := func(name string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, name, r.URL.Path)
			switch path.Base(r.URL.Path) {
			case "held": // the body continues until the test releases it
				_ = http.NewResponseController(w).Flush()
				<-release
			case "hung":
				<-release
			}
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	a := agent(t, "a", "--api-addr", app("a"))
	b := agent(t, "b", "--api-addr", app("b"), "--join", a.Gossip)
	agree(t, a, b)
	behind, err := net.Listen("tcp", "127.0.0.1:0") // an agent that does not answer yet
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = behind.Close() }()
	cmd := exec.Command(agenttest.Binary(t), "proxy", "--key-from", "path:2", "--listen", "127.0.0.1:0",
		"--probe", "127.0.0.1:0", "--answer-within", "1s", "--agents", behind.Addr().String())
	cmd.Env = agentproc.Environ()
	proxy := agenttest.Start(t, cmd)
	logged := func(line string) (addr string) {
		t.Helper()
		eventually(t, func() error {
			found := regexp.MustCompile(line).FindStringSubmatch(proxy.Log.String())
			if found == nil {
				return errors.New(proxy.Log.String())
			}
			addr = found[1]
			return nil
		})
		return addr
	}
	addr, probe := logged(`msg="proxy running" listen=(\S+)`), logged(`msg="probes served" probe=(\S+)`)
	answers := func(url string, want int, text string) func() error {
		return func() error {
			resp, err := http.Get(url)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != want || !strings.Contains(string(body), text) ||
				want == 503 && strings.Contains(url, addr) && resp.Header.Get("Retry-After") == "" {
				err = fmt.Errorf("%s: %s %q, want %d %s", url, resp.Status, body, want, text)
			}
			return err
		}
	}
	for _, early := range []func() error{
		answers("http://"+addr+"/rooms/x", 503, "no agent has sent a table yet"),
		answers("http://"+probe+"/readyz", 503, "no agent has sent a table yet"),
		answers("http://"+probe+"/healthz", 200, "ok"),
	} {
		if err := early(); err != nil {
			t.Error(err)
		}
	}
	go func() { // from now on, the agent answers
		for in, err := behind.Accept(); err == nil; in, err = behind.Accept() {
			if out, err := net.Dial("tcp", a.Addrs.HTTP); err == nil {
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			}
		}
	}()
	eventually(t, answers("http://"+probe+"/readyz", 200, "ready"))
	client := &http.Client{}
	defer client.CloseIdleConnections()
	seen := make(map[string]bool)
	for i := range 50 {
		key := fmt.Sprint("room-", i)
		placed, err := a.Place(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { // the proxy may not have its first table yet
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
	post, err := client.Post("http://"+addr+"/rooms/x/hung", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	_ = post.Body.Close()
	if post.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("a POST to a server that hangs: %s", post.Status)
	}

	held, err := client.Get("http://" + addr + "/rooms/x/held")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Body.Close() }()
	if err := proxy.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, answers("http://"+probe+"/readyz", 503, "the proxy ends"))
	if err := answers("http://"+probe+"/healthz", 200, "ok")(); err != nil {
		t.Error(err)
	}
	close(release)
	if body, err := io.ReadAll(held.Body); err != nil || !strings.HasSuffix(string(body), "/rooms/x/held") {
		t.Errorf("the request in progress: %q, %v", body, err)
	}
	<-proxy.Done()
	if code := proxy.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, proxy.Log)
	}
}

// roost proxy rejects impossible settings when it starts.
func TestProxyUsage(t *testing.T) {
	token := secretFile(t, "0123456789abcdef0123456789abcdef")
	for want, args := range map[string][]string{
		"--key-from is missing":             {},
		"want path:N, query:NAME":           {"--key-from", "body"},
		"the network could read the token":  {"--key-from", "path:1", "--agents", "10.0.0.1:8401", "--token-file", token},
		"is neither host:port nor the URL":  {"--key-from", "path:1", "--agents", "http://"},
		"--listen 203.0.113.9:1: cannot li": {"--key-from", "path:1", "--listen", "203.0.113.9:1"},
		"--probe 203.0.113.9:1: cannot lis": {"--key-from", "path:1", "--listen", "127.0.0.1:0", "--probe", "203.0.113.9:1"},
		"--probe \"here\": want HOST:PORT":  {"--key-from", "path:1", "--probe", "here"},
	} {
		code, out, problem := roost(t, append([]string{"proxy"}, args...)...)
		if code == exitOK || out != "" || !strings.Contains(problem, want) {
			t.Errorf("%v: %d %q %q", args, code, out, problem)
		}
	}
}
