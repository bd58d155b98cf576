package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/pflag"
)

// town is a server that answers for many agents, each with its own host name.
type town struct {
	*httptest.Server
	sees  map[string][]string // by agent; "-x" is a lost member, "=x" has left
	state map[string]string
	hangs map[string]bool
	hang  atomic.Int64       // agents that hang
	last  int64              // when this many agents hang, time runs out for all; 0 = never
	stop  context.CancelFunc // ends the time that all agents have
	urls  map[string]string  // for agents whose URL is not the usual one
	env   map[string]string  // the environment of the command
	told  sync.Map           // agents that were sent a token
	long  string             // added to the end of error messages
	calls func(call string)  // called for each request
	raw   map[string]any     // answers by agent and path
	same  []byte             // the part of the answer about members that is the same for all agents
	busy  atomic.Int64
	most  atomic.Int64 // maximum number of agents that were asked at the same time
}

func newTown(t *testing.T, sees map[string][]string) *town {
	t.Helper()
	tn := &town{sees: sees, state: make(map[string]string), hangs: make(map[string]bool), calls: func(string) {}}
	tn.Server = httptest.NewServer(tn)
	t.Cleanup(tn.Close)
	t.Cleanup(tn.CloseClientConnections)
	return tn
}

func (tn *town) at(id string) string {
	if strings.HasPrefix(id, "off") {
		return ""
	}
	return cmp.Or(tn.urls[id], "http://"+id+":8401")
}

// of returns the agent at host:port.
func (tn *town) of(host string) string {
	for id, url := range tn.urls {
		if strings.HasSuffix(url, "//"+host) {
			return id
		}
	}
	id, _, _ := strings.Cut(host, ":")
	return id
}

func (tn *town) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, call := tn.of(r.Host), r.URL.Path[1:]
	if r.Header.Get("Authorization") != "" {
		tn.told.Store(id, true)
	}
	if tn.hangs[id] {
		if tn.hang.Add(1) == tn.last {
			tn.stop()
		}
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
		return
	}
	now := tn.busy.Add(1)
	defer tn.busy.Add(-1)
	for most := tn.most.Load(); now > most && !tn.most.CompareAndSwap(most, now); most = tn.most.Load() {
	}
	if tn.same != nil && call == "v1/members" {
		_, _ = fmt.Fprintf(w, `{"self":%q,%s`, id, tn.same)
		return
	}
	if code := map[string]string{"absent": clusterhttp.CodeNotReady, "ended": clusterhttp.CodeClosed}[id]; code != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(clusterhttp.Problem{Code: code, Message: "joining: by UDP" + tn.long, State: "joining"})
		return
	}
	tn.calls(call)
	answer := tn.raw[id+r.URL.Path]
	switch sees, known := tn.sees[id]; {
	case answer != nil:
	case !known:
		http.Error(w, "no such agent", http.StatusBadGateway)
		return
	case call == "v1/members":
		answer = tn.members(id, sees)
	default:
		answer = clusterhttp.Stats{
			Self:     lease.NodeID(id),
			State:    tn.state[id],
			Settings: clusterhttp.Settings{Cluster: cmp.Or(map[string]string{"foreign": "staging"}[id], "roost")},
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (tn *town) members(id string, sees []string) clusterhttp.Members {
	m := clusterhttp.Members{Self: lease.NodeID(strings.TrimPrefix(id, "alias-"))}
	for _, other := range sees {
		name, reason := other[1:], map[byte]lease.Reason{'-': lease.Crashed, '=': lease.Departed}[other[0]]
		at := "10.0.0.1:7946"
		if other == "moved" && id == "moved" {
			at = "10.0.0.2:7946"
		}
		if reason == "" {
			m.Members = append(m.Members, clusterhttp.Member{
				Profile: lease.Profile{ID: lease.NodeID(other), Addr: at},
				State:   lease.Active,
				HTTP:    tn.at(other),
			})
		} else {
			m.Lost = append(m.Lost, clusterhttp.Lost{Profile: lease.Profile{ID: lease.NodeID(name)}, HTTP: tn.at(name), Reason: reason})
		}
	}
	return m
}

// timeout is how long an agent may take to answer on a busy machine.
const timeout = time.Minute

func TestMain(m *testing.M) {
	answer = timeout
	m.Run()
}

// take asks all agents, starting with first. All agents together may take 1.5 times as long as one agent.
func (tn *town) take(t *testing.T, first string, progress func(done, of int)) []Agent {
	t.Helper()
	o := new(session.Options)
	from := settings.Sources{Flags: new(pflag.FlagSet), Getenv: func(name string) string { return tn.env[name] }}
	s, err := o.Open(o.Settings(), from, t.Output(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { // also for https, because the test is about who receives what
		return new(net.Dialer).DialContext(ctx, "tcp", tn.Listener.Addr().String())
	}
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	s.HTTP = &http.Client{Transport: transport}
	s.Base, s.Timeout = tn.at(first), timeout
	var ctx context.Context
	ctx, tn.stop = context.WithTimeout(t.Context(), timeout*3/2)
	defer tn.stop()
	agents, err := Take(ctx, s, nil, progress)
	if err != nil {
		t.Fatal(err)
	}
	return agents
}

// TestCheck: the check compares what the agents see, and names each problem.
func TestCheck(t *testing.T) {
	abc := []string{"a", "b", "c"}
	for name, c := range map[string]struct {
		sees  map[string][]string
		state map[string]string
		rows  string   // the agents and how many members they see
		want  []string // findings that are not ok
	}{
		"agreed": {map[string][]string{"a": abc, "b": abc, "c": abc}, nil, "a 3, b 3, c 3", nil},
		"not seen by one": {
			map[string][]string{"a": abc, "b": abc, "c": {"a", "c"}},
			nil, "a 3, b 3, c 2",
			[]string{"warn b is not seen by c"},
		},
		"many not seen by one": {
			map[string][]string{"a": {"a", "b", "d"}, "b": {"a", "b", "c", "d"}, "c": {"c"}, "d": {"a", "b", "d"}},
			nil, "a 3, b 4, c 1, d 3",
			[]string{"warn a, b, d are not seen by c", "warn c is not seen by a, d"},
		},
		"known to others alone": {
			map[string][]string{"a": {"a", "b"}, "b": abc, "c": abc},
			nil, "a 2, b 3, c 3",
			[]string{"warn c is not seen by a"},
		},
		"a split, the others by lost": {
			map[string][]string{"a": {"a", "-b", "-c"}, "b": {"b", "c"}, "c": {"b", "c"}},
			nil, "a 1, b 2, c 2",
			[]string{"fail sides that do not see each other: a | b, c"},
		},
		"lost, and gone": {map[string][]string{"a": {"a", "-x"}}, nil, "a 1", nil},
		"left, and gone": {map[string][]string{"a": {"a", "=x"}}, nil, "a 1", nil},
		"left, and runs apart": {
			map[string][]string{"a": {"a", "=x"}, "x": {"x"}},
			nil, "a 1, x 1",
			[]string{"fail sides that do not see each other: a | x"},
		},
		"left, and ends": {map[string][]string{"a": {"a", "=ended"}}, nil, "a 1", nil},
		"lost, and ended": {
			map[string][]string{"a": {"a", "-ended"}},
			nil, "a 1, ended -",
			[]string{"warn running, but not members: ended ("},
		},
		"left, lost for another, and ended": {
			map[string][]string{"a": {"a", "b", "=ended"}, "b": {"a", "b", "c", "=ended"}, "c": {"a", "b", "c", "-ended"}},
			nil, "a 2, b 3, c 3, ended -",
			[]string{"warn c is not seen by a", "warn running, but not members: ended ("},
		},
		"left, and joins in vain": {
			map[string][]string{"a": {"a", "=absent"}},
			nil, "a 1, absent -",
			[]string{"warn running, but not members: absent (joining: by UDP"},
		},
		"joins": {
			map[string][]string{"a": {"a", "-x"}, "x": {"x"}},
			map[string]string{"x": "joining"},
			"a 1, x 1",
			[]string{"warn x is not seen by a"},
		},
		"running, but not members": {
			map[string][]string{"a": {"a", "-absent"}},
			nil, "a 1, absent -",
			[]string{"warn running, but not members: absent (joining: by UDP"},
		},
		"no answer": {map[string][]string{"a": {"a", "gone"}}, nil, "a 2, gone -", []string{"warn no view from gone ("}},
		"no HTTP":   {map[string][]string{"a": {"a", "off"}}, nil, "a 2, off -", nil},
		"of another cluster": {
			map[string][]string{"a": {"a", "foreign"}, "foreign": {"a", "foreign", "x"}},
			nil, "a 2, foreign -",
			[]string{"warn an agent of another cluster answers for foreign (staging at http://foreign:8401)"},
		},
		"lost, and of another": {
			map[string][]string{"a": {"a", "-foreign"}, "foreign": {"foreign"}},
			nil, "a 1, foreign -",
			[]string{"warn an agent of another cluster answers for foreign ("},
		},
		"left, and of another": {map[string][]string{"a": {"a", "=foreign"}, "foreign": {"foreign"}}, nil, "a 1", nil},
		"at two addresses": {
			map[string][]string{"a": {"a", "b", "moved"}, "b": {"a", "b", "moved"}, "moved": {"a", "b", "moved"}},
			nil, "a 3, b 3, moved 3",
			[]string{"warn moved is seen at 10.0.0.1:7946 and http://moved:8401 by a and 1 more, at 10.0.0.2:7946 and http://moved:8401 by moved"},
		},
		"another agent's address": {
			map[string][]string{"a": {"a", "alias-a"}, "alias-a": {"a"}},
			nil, "a 2, alias-a -",
			[]string{"warn no view from alias-a (the agent at "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tn := newTown(t, c.sees)
			tn.state = c.state
			agents := tn.take(t, "a", nil)
			var rows []string
			for _, a := range agents {
				row := fmt.Sprint(a.ID, " -")
				if a.View != nil {
					row = fmt.Sprint(a.ID, " ", len(a.View.Sees))
				}
				rows = append(rows, row)
			}
			if got := strings.Join(rows, ", "); got != c.rows {
				t.Errorf("agents %q, want %q", got, c.rows)
			}
			var found []string
			for _, check := range Check(agents) {
				if check.Status != doctor.OK {
					found = append(found, fmt.Sprint(check.Status, " ", check.Finding))
				}
			}
			if !slices.EqualFunc(found, c.want, strings.HasPrefix) {
				t.Errorf("finds %q, want %q", found, c.want)
			}
		})
	}
}

// TestTrust: the token is sent to the first agent, and to the agents that are named by an agent to which it was sent.
// It is not sent to an agent that is named only in answers to requests without the token. It is sent to this machine
// only if the first agent is on this machine, and over plain http only with --insecure.
func TestTrust(t *testing.T) {
	t.Parallel()
	tn := newTown(t, map[string][]string{
		"a":     {"a", "b", "c", "here", "any"},
		"b":     {"b", "evil"},
		"c":     {"c", "d"},
		"d":     {"d"},
		"evil":  {"evil", "worse"},
		"worse": {"worse"},
		"here":  {"here"},
		"any":   {"any"},
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame-sesame-sesame-sesame-sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	tn.urls = map[string]string{"here": "http://127.0.0.1:9", "any": "https://0.0.0.0:9"}
	for _, id := range []string{"a", "c", "d", "evil", "worse"} {
		tn.urls[id] = "https://" + id + ":8401"
	}
	for first, want := range map[string]string{
		"https://a:8401":        "a c d",
		"http://127.0.0.1:8401": "a any c d here",
		"http://a:8401":         "a b c d evil worse",
	} {
		tn.told.Clear()
		tn.urls["a"] = first
		tn.env = map[string]string{"ROOST_TOKEN_FILE": token, "ROOST_INSECURE": fmt.Sprint(first == "http://a:8401")}
		agents := tn.take(t, "a", nil)
		var told []string
		for id := range tn.told.Range {
			told = append(told, id.(string))
		}
		slices.Sort(told)
		if got := strings.Join(told, " "); got != want || len(agents) != 8 {
			t.Errorf("from %s the token went to %q, want %q; asked %d agents", first, got, want, len(agents))
		}
		for _, a := range agents {
			if a.View == nil {
				t.Errorf("%s: %s", a.ID, a.Problem)
			}
		}
	}
}

// TestHostileAnswer: an answer causes no more work than an answer from the largest possible cluster, and can only point
// to addresses of agents.
func TestHostileAnswer(t *testing.T) {
	full := &taking{known: make(map[lease.NodeID]*Agent)}
	for i := range 2 * lease.MaxNodes {
		full.meet(lease.NodeID(fmt.Sprint(i)), "http://10.0.0.1:8401", false, "")
	}
	if len(full.known) != lease.MaxNodes || len(full.next) != lease.MaxNodes ||
		full.meet("0", "", false, "") != "0" || full.meet("new", "", false, "") != "" {
		t.Errorf("knows %d, asks %d", len(full.known), len(full.next))
	}
	for at, want := range map[string]bool{
		"http://10.0.0.1:8401":           true,
		"https://sfu-1.example:8401":     true,
		"https://[fd00::1]:8401":         true,
		"http://10.0.0.1":                false,
		"10.0.0.1:8401":                  false,
		"http://:8401":                   false,
		"ftp://10.0.0.1:8401":            false,
		"http://a@10.0.0.1:8401":         false,
		"http://10.0.0.1:8401/":          false,
		"http://10.0.0.1:8401/v1/leave?": false,
		"http://10.0.0.1:8401?a=b":       false,
		"http://10.0.0.1:8401#a":         false,
		"http://10.0.0.1:x":              false,
	} {
		one := &taking{known: make(map[lease.NodeID]*Agent)}
		if one.meet("b", at, true, ""); len(one.next) == 1 != want || one.known["b"].HTTP != "" != want {
			t.Errorf("%s: asked is %v", at, !want)
		}
	}
	tn := newTown(t, map[string][]string{"a": {"a", "absent"}})
	tn.long = strings.Repeat("long", 1000)
	if problem := tn.take(t, "a", nil)[1].Problem; len(problem) != 200 {
		t.Errorf("a reason of %d bytes: %s", len(problem), problem)
	}
}

// TestLongAnswer: roost keeps no more of an answer than a normal agent's answer needs.
func TestLongAnswer(t *testing.T) {
	tn := newTown(t, map[string][]string{"a": {"a", "b", "foreign"}})
	long := strings.Repeat("long", 1<<18)
	members := clusterhttp.Members{Self: "b", Members: []clusterhttp.Member{
		{Profile: lease.Profile{ID: "a", Addr: "10.0.0.9:7946" + long}},
		{Profile: lease.Profile{ID: "b", Addr: long}},
		{Profile: lease.Profile{ID: "d"}, HTTP: "http://" + long + ":8401"},
		{Profile: lease.Profile{ID: lease.NodeID(long)}},
	}}
	for i := range members.Members {
		members.Members[i].State = lease.Active
	}
	for i := range 2000 {
		members.Lost = append(members.Lost, clusterhttp.Lost{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("l", i))}, Reason: lease.Crashed})
	}
	members.Lost[0].Reason, members.Lost[1].ID = lease.Reason(long), lease.NodeID(long)
	tn.raw = map[string]any{
		"b/v1/members":       members,
		"b/v1/stats":         clusterhttp.Stats{State: long, Settings: clusterhttp.Settings{Cluster: "roost"}},
		"foreign/v1/members": clusterhttp.Members{Self: "foreign"},
		"foreign/v1/stats":   clusterhttp.Stats{Settings: clusterhttp.Settings{Cluster: long}},
	}
	agents := tn.take(t, "a", nil)
	if len(agents) != 4 || agents[1].View == nil || len(agents[1].View.Lost) != 256 || agents[3].foreign == "" {
		t.Fatalf("%d agents: %.2000s", len(agents), fmt.Sprintf("%+v", agents))
	}
	for _, a := range agents {
		b, err := json.Marshal(a)
		if size := len(b) + len(fmt.Sprint(a.places, a.foreign)); err != nil || size > 10_000 {
			t.Errorf("%.80s: %d bytes, %v", a.ID, size, err)
		}
	}
	for _, c := range Check(agents) {
		if len(c.Finding) > 2000 {
			t.Errorf("a finding of %d bytes: %.80s", len(c.Finding), c.Finding)
		}
	}
}

// TestFirstOnce: each agent is asked once. This includes the first agent, even if the session does not know its URL and
// its member list does.
func TestFirstOnce(t *testing.T) {
	agent := fakeagent.New(t)
	at := agent.Env["ROOST_ADDR"]
	agent.Set("GET /v1/members", clusterhttp.Members{Self: "a", Members: []clusterhttp.Member{
		{Profile: lease.Profile{ID: "a"}, State: lease.Active, HTTP: "http://" + at},
	}})
	s := &session.Session{Client: &clusterhttp.Client{Base: at}, Timeout: time.Minute}
	agents, err := Take(t.Context(), s, nil, nil)
	if err != nil || len(agents) != 1 || agent.Times("GET /v1/members") != 1 {
		t.Errorf("%+v, %v; asked %d times", agents, err, agent.Times("GET /v1/members"))
	}
}
