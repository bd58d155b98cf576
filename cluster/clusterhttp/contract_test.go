package clusterhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// The scripts contain the exact responses. They use these commands:
//
//	start a b c            start nodes with 16 partitions and wait until they agree
//	start-with id=d [draining] [weight=N]   start a node and do not wait
//	on a                   send the next requests to this node
//	wait 3s                wait in virtual time
//	drain b, leave b, pause b, resume b     change a node
//	scope role:sfu         make a scope with this name and label at this node
//	rooms                  start a resolver at each node, with a shared store
//	load a=400             set the load of a node
//	http                   send a request: method and target, headers, empty line, body
func TestContract(t *testing.T) {
	for _, script := range []string{
		"testdata/contract", "testdata/errors", "testdata/cordon", "testdata/flapping", "testdata/life",
		"testdata/lost", "testdata/rooms", "testdata/scopes",
	} {
		t.Run(script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := story{handlers: make(map[string]http.Handler)}
				s.c = clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
					cfg.Partitions = 16
					cfg.APIAddr = cfg.ID + ".example:9000"
					cfg.Zone = "zone-1"
					cfg.Capacity = 500
					cfg.Resources = map[string]int64{"cpu": 800, "egress_mbit": 10_000}
					if cfg.ID == "a" {
						cfg.Labels = map[string]string{"role": "sfu"}
					}
				}})
				datadriven.RunTest(t, script, s.run)
			})
		})
	}
}

type story struct {
	c        *clustertest.Cluster
	on       string
	handlers map[string]http.Handler
	rooms    map[string]*affinity.Resolver // nil: no store
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var ids []string
	for _, arg := range d.CmdArgs {
		ids = append(ids, arg.Key)
	}
	switch d.Cmd {
	case "start":
		s.c.Start(ids...)
		s.c.WaitAgreed(5 * time.Second)
	case "start-with":
		s.startWith(d)
	case "on":
		s.on = ids[0]
	case "wait":
		pause, err := time.ParseDuration(ids[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		time.Sleep(pause)
	case "drain":
		if err := s.c.Agent(ids[0]).Drain(t.Context()); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "restart":
		s.c.Restart(ids[0])
		s.c.WaitAgreed(30 * time.Second)
		delete(s.handlers, ids[0])
	case "leave":
		s.handler() // create the handler now, for requests after the node has left
		s.c.Leave(ids[0])
	case "scope":
		label, value, _ := strings.Cut(ids[0], ":")
		if _, err := s.c.Agent(s.on).Scope(ids[0], func(m *cluster.Member) bool { return m.Has(label, value) }); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "rooms":
		s.rooms = startRooms(t, s.c, pinstore.NewMemory(), affinity.Config{HardCeiling: 100})
	case "load":
		for _, arg := range d.CmdArgs {
			units, err := strconv.ParseInt(arg.Vals[0], 10, 64)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			s.c.Agent(arg.Key).SetLoad(units)
		}
	case "pause":
		s.c.Pause(ids[0])
	case "resume":
		s.c.Resume(ids[0])
	case "http":
		return s.request(d.Input)
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return ""
}

func (s *story) startWith(d *datadriven.TestData) {
	id := d.CmdArgs[0].Vals[0]
	s.c.StartWith(id, clustertest.WithConfig(func(cfg *cluster.Config) {
		cfg.StartDraining = d.HasArg("draining")
		cfg.Debounce = time.Second
	}))
	s.on = id
}

func (s *story) handler() http.Handler {
	h := s.handlers[s.on]
	if h == nil {
		h = Handler(s.c.Agent(s.on), Options{Log: quiet, Rooms: s.rooms[s.on]})
		s.handlers[s.on] = h
	}
	return h
}

var volatile = regexp.MustCompile(`("(?:age_ms|ago_ms|clock_offset_ms|for_ms|flapping_ms|drains_ms|version)": |"incarnation": "|"epoch": [1-9]|for another |the oldest lease is |so far, for )-?\d+(?:m\d+s|(?:\.\d+)?m?s)?`)

func (s *story) request(text string) string {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	method, target, _ := strings.Cut(lines[0], " ")
	w := do(s.handler(), method, target, body, lines[1:]...)

	var out strings.Builder
	fmt.Fprintln(&out, w.Code, w.Header().Get("Content-Type"))
	for _, name := range []string{"Allow", "Retry-After", "WWW-Authenticate"} {
		if value := w.Header().Get(name); value != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := w.Header().Get(name); got != want {
			fmt.Fprintf(&out, "%s: %q, want %q\n", name, got, want)
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, w.Body.Bytes(), "", "  "); err != nil {
		return out.String() + w.Body.String()
	}
	out.WriteString(volatile.ReplaceAllString(pretty.String(), "${1}…"))
	return out.String()
}
