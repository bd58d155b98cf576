package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/roost-cluster/roost/internal/agentproc"
)

// directoryOf returns a directory of the pods of the service sfu, for a node at 10.0.0.1.
func directoryOf(t *testing.T, cfg *rest.Config, log *slog.Logger) *directory {
	t.Helper()
	a, err := open(Options{API: cfg, Namespace: namespace, Pod: "app-1"})
	if err != nil {
		t.Fatal(err)
	}
	d := &directory{api: a, service: "sfu", port: "gossip", near: netip.MustParseAddr("10.0.0.1"), log: log}
	d.last.Store(&list{})
	return d
}

// Seeds are the addresses of all pods with the port of that name, without duplicates. If there are addresses of the
// node's IP family, only these are seeds.
func TestSeeds(t *testing.T) {
	for name, c := range map[string]struct {
		self string
		put  func(s *server)
		want string // or part of the error
	}{
		"no pods":   {"10.0.0.1", func(*server) {}, ""},
		"not ready": {"10.0.0.1", func(s *server) { s.serve("app", "sfu", 7946, "10.0.0.2", "10.0.0.1") }, "10.0.0.1:7946 10.0.0.2:7946"},
		"several slices, with a pod in two": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1", "10.0.0.2")
			s.serve("app-2", "sfu", 7946, "10.0.0.2", "10.0.0.3")
		}, "10.0.0.1:7946 10.0.0.2:7946 10.0.0.3:7946"},
		"a rollout that changes the port": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			s.serve("app-2", "sfu", 7000, "10.0.0.2")
		}, "10.0.0.1:7946 10.0.0.2:7000"},
		"another service": {"10.0.0.1", func(s *server) { s.serve("other", "db", 7946, "10.0.0.9") }, ""},
		"two families, IPv4": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			s.serve("app-6", "sfu", 7946, "fd00::1")
		}, "10.0.0.1:7946"},
		"two families, IPv6": {"fd00::2", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			s.serve("app-6", "sfu", 7946, "fd00::1")
		}, "[fd00::1]:7946"},
		"the other family alone": {"10.0.0.1", func(s *server) { s.serve("app-6", "sfu", 7946, "fd00::1") }, "[fd00::1]:7946"},
		"names": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			s.serve("app-2", "sfu", 7946, "pod.example.org")
		}, "10.0.0.1:7946"},
		"a pod that ends": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			s.slices["app"].Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		}, "10.0.0.1:7946"},
		"another port": {"10.0.0.1", func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.1")
			*s.slices["app"].Ports[0].Name = "http"
		}, `no port "gossip", but "gossip-stream", "http"`},
		"no service": {"10.0.0.1", func(s *server) { clear(s.slices) }, "no service sfu in the namespace media"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c.put(s)
			d := directoryOf(t, s.over(t), quiet)
			d.near = netip.MustParseAddr(c.self)
			found, err := d.list(t.Context())
			if err != nil {
				if c.want == "" || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			} else if got := strings.Join(found.seeds(), " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The log says when discovery begins to fail and why, and when it works again, but does not repeat this for each call.
// If the caller's context ends, this is not a failure. While discovery fails, Discover returns the latest seeds.
func TestDiscoveryLogs(t *testing.T) {
	s, lines := newServer(t), new(agentproc.Log)
	d := directoryOf(t, s.over(t), slog.New(slog.NewTextHandler(lines, nil)))
	ended, end := context.WithCancel(t.Context())
	end()
	s.serve("app", "sfu", 7946, "10.0.0.1")
	step := func(ctx context.Context, state string) {
		t.Helper()
		s.become(state)
		d.last.Load().until = time.Time{} // only one goroutine uses it
		if seeds, err := d.seeds(ctx); err != nil || fmt.Sprint(seeds) != "[10.0.0.1:7946]" {
			t.Errorf("%q: %v %v", state, seeds, err)
		}
	}
	step(t.Context(), "")
	step(ended, "")
	step(t.Context(), "busy")
	step(t.Context(), "busy")
	step(t.Context(), "")
	step(t.Context(), "")
	s.change(func() { s.rules = nil }) // a permission is revoked while members run
	step(t.Context(), "")
	want := `needs a Role in the namespace media with the rule {apiGroups: [\"discovery.k8s.io\"]`
	if !strings.Contains(lines.String(), want) {
		t.Errorf("no %s in %s", want, lines)
	}
	const fails, works = "discovery failed; keeping the latest seeds", "discovery works again"
	if got := messages(lines); !slices.Equal(got, []string{fails, works, fails}) {
		t.Errorf("the log is %q", got)
	}
}

// A node that is alone lists the pods at every call. The more nodes there are, the less often each node does, so the
// API server gets at most 16 list requests per second.
func TestListEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		d := directoryOf(t, s.inMemory(), quiet)
		for _, n := range []int{0, 160} {
			var pods []string
			for i := range n {
				pods = append(pods, fmt.Sprint("10.0.0.", i+1))
			}
			s.serve("app", "sfu", 7946, pods...)
			before := len(s.asked)
			for range 20 {
				if seeds, err := d.seeds(t.Context()); err != nil || len(seeds) != n {
					t.Fatal(len(seeds), err)
				}
				time.Sleep(time.Second)
			}
			if asked, want := len(s.asked)-before, map[int]int{0: 20, 160: 2}[n]; asked != want {
				t.Errorf("%d pods: %d lists in 20 s, want %d", n, asked, want)
			}
		}
	})
}
