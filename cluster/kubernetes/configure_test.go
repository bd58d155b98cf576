package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// messages returns the messages that a handler has logged.
func messages(log *agentproc.Log) (found []string) {
	for _, m := range regexp.MustCompile(`msg="(.*?)"`).FindAllStringSubmatch(log.String(), -1) {
		found = append(found, m[1])
	}
	return found
}

var quiet = slog.New(slog.DiscardHandler)

func options(api *rest.Config) Options {
	return Options{Service: "sfu", Namespace: namespace, Pod: "app-7d4b9-x2x9k", Labels: []string{"disk", "none"}, API: api}
}

// Configure fills the configuration with what Kubernetes knows about the pod. It keeps what the caller has set.
func TestConfigure(t *testing.T) {
	plain := map[string]string{"disk": "ssd", "app": "sfu"}
	zoned := map[string]string{corev1.LabelTopologyZone: "zone-b"}
	for name, c := range map[string]struct {
		ip     string
		labels map[string]string
		in     cluster.Config
		want   cluster.Config
	}{
		"defaults": {"10.0.0.1", plain, cluster.Config{}, cluster.Config{
			ID: "app-7d4b9-x2x9k", Bind: "10.0.0.1:7946", Zone: "zone-a", Labels: map[string]string{"disk": "ssd"},
		}},
		"IPv6, and a pod with its zone": {"fd00::1", zoned, cluster.Config{}, cluster.Config{
			ID: "app-7d4b9-x2x9k", Bind: "[fd00::1]:7946", Zone: "zone-b",
		}},
		"all addresses": {"10.0.0.1", zoned, cluster.Config{Bind: "0.0.0.0:7000"}, cluster.Config{
			ID: "app-7d4b9-x2x9k", Bind: "0.0.0.0:7000", Advertise: "10.0.0.1:7000", Zone: "zone-b",
		}},
		"all addresses, in short": {"10.0.0.1", zoned, cluster.Config{Bind: ":7000"}, cluster.Config{
			ID: "app-7d4b9-x2x9k", Bind: ":7000", Advertise: "10.0.0.1:7000", Zone: "zone-b",
		}},
		"by the caller": {"10.0.0.1", plain, cluster.Config{
			ID: "a", Cluster: "calls", Bind: "10.0.0.2:1", Advertise: "10.0.0.3:2", Zone: "z", Labels: map[string]string{"disk": "hdd", "x": "y"},
		}, cluster.Config{
			ID: "a", Cluster: "calls", Bind: "10.0.0.2:1", Advertise: "10.0.0.3:2", Zone: "z", Labels: map[string]string{"disk": "hdd", "x": "y"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.pod("app-7d4b9-x2x9k", c.ip, c.labels)
			s.serve("app", "sfu", 7946, c.ip)
			given := fmt.Sprint(c.in)
			got, err := Configure(t.Context(), c.in, options(s.over(t)))
			if err != nil || got.Discover == nil {
				t.Fatal(err)
			}
			got.Discover = nil
			if c.in.Cluster == "" {
				c.want.Cluster = "media.sfu"
			}
			if !reflect.DeepEqual(got, c.want) || given != fmt.Sprint(c.in) {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
			if asked := slices.Contains(s.asked, "get nodes"); asked != (c.want.Zone == "zone-a") {
				t.Errorf("asked for the node: %v", asked)
			}
		})
	}
}

// If a permission is missing, the error shows the role's rule that grants it. The manifest contains exactly the rules
// that are needed.
func TestRights(t *testing.T) {
	s := newServer(t)
	s.pod("app-7d4b9-x2x9k", "127.0.0.1", nil)
	s.serve("app", "sfu", 7946, "127.0.0.1")
	o := options(s.over(t))
	run := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cfg, err := Configure(ctx, cluster.Config{Bind: "127.0.0.1:0", Network: cluster.Local, Bootstrap: true, Log: quiet}, o)
		if err != nil {
			return err
		}
		agent, err := cluster.Start(ctx, cfg)
		if err != nil {
			return err
		}
		defer agent.Close()
		s.change(func() { s.onPatch = cancel })
		return ReportReady(ctx, agent, o)
	}
	if err := run(t.Context()); !errors.Is(err, context.Canceled) || len(s.rules) != 4 {
		t.Fatalf("with all %d rules: %v", len(s.rules), err)
	}
	all := slices.Clone(s.rules)
	for i, rule := range all {
		s.change(func() { s.rules = slices.Delete(slices.Clone(all), i, i+1) })
		err := run(t.Context())
		want := fmt.Sprintf("with the rule {apiGroups: [%q], resources: [%q], verbs: [%q]}", rule.APIGroups[0], rule.Resources[0], rule.Verbs[0])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %v: %v", rule, err)
		}
		where := "a Role in the namespace media"
		if rule.Resources[0] == "nodes" {
			where = "a ClusterRole"
		}
		if err != nil && !strings.Contains(err.Error(), "the service account needs "+where) {
			t.Errorf("where? %v", err)
		}
	}
	s.change(func() { s.rules = []rbacv1.PolicyRule{} })
	if err := run(t.Context()); err == nil {
		t.Error("no rights are enough")
	}
}

// If the options are wrong, Configure fails immediately, and the error says what to do.
func TestProblems(t *testing.T) {
	s := newServer(t)
	s.pod("app-7d4b9-x2x9k", "10.0.0.1", nil)
	api := s.over(t)
	for want, f := range map[string]func(o *Options, cfg *cluster.Config){
		"Options.Service is empty": func(o *Options, _ *cluster.Config) { o.Service = "" },
		"Configure sets it":        func(_ *Options, cfg *cluster.Config) { cfg.Discover = (&directory{}).seeds },
		"set Options.API":          func(o *Options, _ *cluster.Config) { o.API = nil },
		"pass metadata.name":       func(o *Options, _ *cluster.Config) { o.Pod = "host-1" },
		"set Options.Namespace":    func(o *Options, _ *cluster.Config) { o.Namespace = "" },
		"specifying a root certificates file": func(o *Options, _ *cluster.Config) {
			o.API = &rest.Config{Host: api.Host, TLSClientConfig: rest.TLSClientConfig{Insecure: true, CAData: []byte("x")}}
		},
	} {
		o, cfg := options(api), cluster.Config{Log: quiet}
		f(&o, &cfg)
		if _, err := Configure(t.Context(), cfg, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Configure waits for the pod's address, for the API server, and for a Service that lists the pod, because a node that
// is alone would own everything. The log says what Configure waits for. It gives up when its context ends.
func TestConfigureWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := newServer(t), new(agentproc.Log)
		s.change(func() { clear(s.slices) })
		s.pod("app-7d4b9-x2x9k", "", nil)
		s.become("down")
		time.AfterFunc(time.Minute, func() { s.become("hangs") })
		time.AfterFunc(2*time.Minute, func() { s.become("busy") })
		time.AfterFunc(3*time.Minute, func() { s.become("") })
		time.AfterFunc(4*time.Minute, func() { s.pod("app-7d4b9-x2x9k", "10.0.0.1", nil) })
		time.AfterFunc(5*time.Minute, func() { s.serve("app", "sfu", 7946) })
		time.AfterFunc(6*time.Minute, func() { s.serve("app", "sfu", 7946, "10.0.0.2") })
		time.AfterFunc(7*time.Minute, func() { s.serve("app", "sfu", 7946, "10.0.0.2", "10.0.0.1") })
		o, began := options(s.inMemory()), time.Now()
		cfg, err := Configure(t.Context(), cluster.Config{Log: slog.New(slog.NewTextHandler(lines, nil))}, o)
		if took := time.Since(began); err != nil || took < 7*time.Minute || took > 7*time.Minute+10*time.Second {
			t.Errorf("configured after %v: %v", took, err)
		}
		if cfg.Bind != "10.0.0.1:7946" {
			t.Errorf("%+v", cfg)
		}
		if n := len(messages(lines)); n < 6 || n > 20 {
			t.Errorf("%d lines: %s", n, lines)
		}
		if n := len(s.asked); n > 250 {
			t.Errorf("%d requests in 4 minutes", n)
		}

		s.become("hangs")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		_, err = Configure(ctx, cluster.Config{Log: quiet}, o)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// If the Service does not list the pod, for example because its selector is wrong, the pod would form a cluster of one
// node. The error says what to compare. It is enough if the Service lists one of the pod's addresses.
func TestOwnPod(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(s *server)
		want string // a part of the error; "": none
	}{
		"listed":       {func(s *server) { s.serve("app", "sfu", 7946, "10.0.0.1", "10.0.0.2") }, ""},
		"other family": {func(s *server) { s.serve("app", "sfu", 7946, "fd00::1") }, ""},
		"no pods": {
			func(s *server) { s.serve("app", "sfu", 7946) },
			`the service sfu in the namespace media does not list the pod app-7d4b9-x2x9k (10.0.0.1, fd00::1)`,
		},
		"others alone": {
			func(s *server) { s.serve("app", "sfu", 7946, "10.0.0.11") },
			"compare the selector of the service with the labels of the pod",
		},
		"a pod without the port": {func(s *server) {
			s.serve("app", "sfu", 7946, "10.0.0.2")
			s.serve("app-2", "sfu", 7946, "10.0.0.1")
			*s.slices["app-2"].Ports[0].Name = "http"
		}, `with a port "gossip": add one to the service; if its targetPort is a name, the pod's container needs`},
		"a service without ports": {func(s *server) { s.serve("app", "sfu", 0, "10.0.0.1") }, `with a port "gossip"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.dual("app-7d4b9-x2x9k", "10.0.0.1", "fd00::1")
				c.put(s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := Configure(ctx, cluster.Config{Log: quiet}, options(s.inMemory()))
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			})
		})
	}
}

// While Configure waits, labels may change, and the pod may get another address. Configure uses what the last attempt
// returned.
func TestPodChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.pod("app-7d4b9-x2x9k", "10.0.0.1", map[string]string{"disk": "hdd", corev1.LabelTopologyZone: "zone-a"})
		time.AfterFunc(time.Minute, func() {
			s.pod("app-7d4b9-x2x9k", "10.0.0.9", map[string]string{"disk": "ssd", corev1.LabelTopologyZone: "zone-b"})
			s.serve("app", "sfu", 7946, "10.0.0.9")
		})
		cfg, err := Configure(t.Context(), cluster.Config{Log: quiet}, options(s.inMemory()))
		if err != nil || cfg.Bind != "10.0.0.9:7946" || cfg.Labels["disk"] != "ssd" || cfg.Zone != "zone-b" {
			t.Errorf("%s %v %s %v", cfg.Bind, cfg.Labels, cfg.Zone, err)
		}
	})
}

// While the API server does not answer, Discover returns the seeds of the latest list, so a node that has just been
// configured does not start alone.
func TestLatestSeedsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.pod("app-7d4b9-x2x9k", "10.0.0.1", nil)
		s.serve("app", "sfu", 7946, "10.0.0.1", "10.0.0.2")
		cfg, err := Configure(t.Context(), cluster.Config{Log: quiet}, options(s.inMemory()))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(state, want string) {
			t.Helper()
			time.Sleep(time.Second)
			s.become(state)
			if seeds, err := cfg.Discover(t.Context()); err != nil || fmt.Sprint(seeds) != want {
				t.Errorf("%q: %v %v, want %s", state, seeds, err, want)
			}
		}
		const before, later = "[10.0.0.1:7946 10.0.0.2:7946]", "[10.0.0.1:7946 10.0.0.3:7946]"
		expect("busy", before)
		expect("down", before)
		s.serve("app", "sfu", 7946, "10.0.0.1", "10.0.0.3")
		expect("busy", before)
		expect("", later)
		expect("busy", later)
	})
}

// The seeds have the same IP family as the node's gossip address.
func TestFamily(t *testing.T) {
	for name, c := range map[string]struct {
		in   cluster.Config
		want string
	}{
		"defaults":       {cluster.Config{}, "[10.0.0.1:7946]"},
		"bound":          {cluster.Config{Bind: "[fd00::1]:7946"}, "[[fd00::1]:7946]"},
		"all addresses":  {cluster.Config{Bind: "[::]:7946"}, "[10.0.0.1:7946]"},
		"its advertised": {cluster.Config{Bind: "[::]:7946", Advertise: "[fd00::1]:7946"}, "[[fd00::1]:7946]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.dual("app-7d4b9-x2x9k", "10.0.0.1", "fd00::1")
				s.serve("app", "sfu", 7946, "10.0.0.1")
				s.serve("app-6", "sfu", 7946, "fd00::1")
				c.in.Log = quiet
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cfg, err := Configure(ctx, c.in, options(s.inMemory()))
				if err != nil {
					t.Fatal(err)
				}
				if seeds, err := cfg.Discover(ctx); err != nil || fmt.Sprint(seeds) != c.want {
					t.Errorf("%v %v, want %s", seeds, err, c.want)
				}
			})
		})
	}
}

// A pod has only an IPv4 address, but others reach it at an IPv6 address outside the cluster. Then the seeds are IPv6
// addresses, and the Service must list the pod's own address.
func TestReachedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.pod("app-7d4b9-x2x9k", "10.0.0.1", nil)
		s.serve("app", "sfu", 7946, "10.0.0.1", "10.0.0.2")
		s.serve("app-6", "sfu", 7946, "fd00::2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cfg, err := Configure(ctx, cluster.Config{Bind: "[::]:7946", Advertise: "[2001:db8::1]:7946", Log: quiet}, options(s.inMemory()))
		if err != nil {
			t.Fatal(err)
		}
		if seeds, err := cfg.Discover(ctx); err != nil || fmt.Sprint(seeds) != "[[fd00::2]:7946]" {
			t.Errorf("%v %v", seeds, err)
		}
	})
}
