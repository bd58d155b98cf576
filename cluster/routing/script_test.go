package routing_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/tablewire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// script is a process that runs routing.mjs in Node.js.
type script struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func startScript(t *testing.T, agents ...string) *script {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "node", append([]string{"testdata/routing.mjs"}, agents...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problem strings.Builder
	cmd.Stderr = &problem
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: Node.js is not installed: run scripts/deps.sh, or apt-get install nodejs", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || problem.Len() > 0 {
			t.Errorf("node: %v\n%s", err, &problem)
		}
	})
	return &script{t, in, bufio.NewReader(out)}
}

// answer is an answer of the script.
type answer struct {
	Hash      string
	Partition placement.Partition
	Digest    string
	Owners    []string
	Status    struct {
		Agent  string
		Age    int64
		Stale  bool
		Errors map[string]string
	}
	Members []struct{ ID string }
	Seen    struct {
		Moved   int
		Owners  map[int]string
		Members []string
	}
}

func (s *script) ask(question map[string]any) (a answer) {
	s.t.Helper()
	b, err := json.Marshal(question)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = fmt.Fprintf(s.in, "%s\n", b)
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		s.t.Fatalf("no answer to %s: %v", b, err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return a
}

// routing.mjs and Go compute the same hashes, partitions and digests.
func TestScriptVectors(t *testing.T) {
	s := startScript(t, "127.0.0.1:1")
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range 150 {
		text := []rune{}
		for range n {
			text = append(text, rune('a'+rng.IntN(26)), []rune("é漢🙂")[rng.IntN(3)])
		}
		in := string(text[:n])
		if got, want := s.ask(map[string]any{"ask": "hash", "text": in}).Hash, fmt.Sprintf("%016x", xxhash.Sum64String(in)); got != want {
			t.Fatalf("the hash of %q is %s, want %s", in, got, want)
		}
		if got, want := s.ask(map[string]any{"ask": "partition", "text": in, "of": 1 + n*7}).Partition, placement.Of(in, 1+n*7); got != want {
			t.Fatalf("the partition of %q is %d, want %d", in, got, want)
		}
	}
	for n := range 20 {
		var nodes []placement.Node
		for i := range n {
			nodes = append(nodes, placement.Node{ID: lease.NodeID(fmt.Sprint("node-", i*i)), Weight: uint32(1 + i)})
		}
		table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 1 + 100*n, Strategy: placement.Rendezvous()})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.ask(map[string]any{"ask": "digest", "table": table.Export(1)}).Digest; got != table.Digest().String() {
			t.Errorf("the digest of %d nodes is %s, want %s", n, got, table.Digest())
		}
	}
}

// routing.mjs follows a real agent through changes, and switches to another agent when its agent ends.
func TestScript(t *testing.T) {
	agents := make(map[string]*cluster.Agent) // by URL
	servers := make(map[string]*httptest.Server)
	var urls, join []string
	for _, id := range []string{"a", "b", "c"} {
		agent, err := cluster.Start(t.Context(), cluster.Config{
			ID:         id,
			Bind:       "127.0.0.1:0",
			APIAddr:    id + ".example:9000",
			Join:       join,
			Network:    cluster.Local,
			LeaseTTL:   10 * time.Second,
			Partitions: partitions,
			Log:        quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.Close() }()
		<-agent.Ready()
		join = append(join, agent.Addr())
		srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
		defer srv.Close()
		defer srv.CloseClientConnections()
		urls, agents[srv.URL], servers[srv.URL] = append(urls, srv.URL), agent, srv
	}
	s := startScript(t, urls[:2]...)
	s.ask(map[string]any{"ask": "ready"})
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = fmt.Sprint("room-", i, "-é")
	}
	same := func(after, url string) {
		t.Helper()
		var problem string
		for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if problem = scriptDiffers(s, agents[url].Snapshot(), url, keys); problem == "" || time.Now().After(until) {
				break
			}
		}
		if problem != "" {
			t.Fatalf("after %s: %s", after, problem)
		}
	}
	url := s.ask(map[string]any{"ask": "status"}).Status.Agent
	same("the start", url)
	if err := agents[urls[2]].Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	same("a drain", url)
	if err := agents[urls[2]].Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	same("an undrain", url)
	servers[url].CloseClientConnections()
	go servers[url].Close()
	same("the end of its agent", others(urls[:2], url)[0])
}

// routing.mjs does not use a table of another cluster, either.
func TestScriptOtherCluster(t *testing.T) {
	stream := func(name string, id lease.NodeID) http.HandlerFunc {
		return sends(event(t, nil, &tablewire.State{Cluster: name, Table: tableOf(t, 8, id)}))
	}
	own := httptest.NewServer(stream("roost", "a"))
	t.Cleanup(own.Close)
	var turned atomic.Bool
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !turned.Load() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		stream("db", "x")(w, r)
	}))
	t.Cleanup(foreign.Close)
	s := startScript(t, own.URL, foreign.URL)
	s.ask(map[string]any{"ask": "ready"})
	turned.Store(true)
	_ = own.Listener.Close()
	own.CloseClientConnections()
	const want = `belongs to cluster "db", not to "roost"`
	var a answer
	waits := func() bool { return !strings.Contains(a.Status.Errors[foreign.URL], want) || a.Status.Agent != "" }
	for until := time.Now().Add(time.Minute); time.Now().Before(until) && waits(); time.Sleep(20 * time.Millisecond) {
		a = s.ask(map[string]any{"ask": "status"})
	}
	owners := s.ask(map[string]any{"ask": "place", "keys": []string{"room"}}).Owners
	if !strings.Contains(a.Status.Errors[foreign.URL], want) || a.Status.Agent != "" || fmt.Sprint(owners) != "[a ]" {
		t.Errorf("%+v, %v", a.Status, owners)
	}
}

func scriptDiffers(s *script, snap *cluster.Snapshot, url string, keys []string) string {
	a := s.ask(map[string]any{"ask": "status"})
	if a.Status.Agent != url || len(a.Status.Errors) > 0 || len(a.Members) != len(snap.Members) ||
		len(a.Seen.Members) != len(snap.Members) || a.Status.Age > 5000 {
		return fmt.Sprintf("%+v, want %s", a, url)
	}
	for i, at := range s.ask(map[string]any{"ask": "place", "keys": keys}).Owners {
		m, err := snap.Place(keys[i])
		if err != nil || at != fmt.Sprint(m.ID, " ", m.APIAddr) {
			return fmt.Sprintf("%s is at %q, want %+v, %v", keys[i], at, m, err)
		}
		p := snap.Table.OwnerIndex(placement.Of(keys[i], partitions))
		if a.Seen.Owners[int(placement.Of(keys[i], partitions))] != string(snap.Table.Nodes()[p].ID) {
			return "the changes do not add up to the owner of " + keys[i]
		}
	}
	return ""
}
