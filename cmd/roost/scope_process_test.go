//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// TestScopeFlag: three agents have the same scopes, and one of them reads its scopes from its file. The commands with
// --scope answer from the scope at each agent, a proxy sends requests only to members of the scope, and a command names
// a scope that an agent does not have.
func TestScopeFlag(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an sfu") }))
	defer server.Close()
	api := server.Listener.Addr().String()
	scopes := []string{"--scope", "sfu=role:sfu", "--scope", "eu=zone:eu-1,mcu=role:mcu"}
	a := agent(t, "a", append(calm(), append(scopes, "--label", "role=sfu", "--api-addr", api)...)...)
	file := secretFile(t, "scope: {sfu: 'role:sfu', eu: 'zone:eu-1', mcu: 'role:mcu'}\nlabel: {role: sfu}\n")
	b := agent(t, "b", append(calm(), "--join", a.Gossip, "--config", file, "--api-addr", api)...)
	c := agent(t, "c", append(calm(), append(scopes, "--join", a.Gossip, "--label", "role=gateway", "--zone", "eu-1")...)...)
	agree(t, a, b, c)

	owner := make(map[string]string)
	for _, p := range []*proc{a, b, c} {
		placed := succeeds(t, "place", "k1", "k2", "k3", "k4", "k5", "k6", "--scope", "sfu", "--output", "json", "--addr", p.Base)
		for line := range strings.Lines(placed) {
			var placed clusterhttp.Placed
			if err := json.Unmarshal([]byte(line), &placed); err != nil || placed.Owner.Labels["role"] != "sfu" {
				t.Errorf("at %s: %s, %v", p.ID, line, err)
			}
			if other := owner[placed.Key]; other != "" && other != string(placed.Owner.ID) {
				t.Errorf("%s is at %s, and %s says at %s", placed.Key, other, p.ID, placed.Owner.ID)
			}
			owner[placed.Key] = string(placed.Owner.ID)
		}
		out := succeeds(t, "owners", "k1", "--scope", "eu", "--addr", p.Base)
		if !strings.Contains(out, "\n1     c ") || strings.Contains(out, "\n2") {
			t.Errorf("the owners at %s: %s", p.ID, out)
		}
	}
	out := succeeds(t, "partitions", "--scope", "sfu", "--addr", c.Base)
	if !strings.Contains(out, "\na ") || !strings.Contains(out, "\nb ") || strings.Contains(out, "\nc ") ||
		!strings.Contains(out, "not compared with other members, which do not report") {
		t.Errorf("partitions: %s", out)
	}
	watch := inBackground(t, nil, "watch", "--scope", "eu", "--addr", c.Base)
	watch.shows(watch.out, "here: 1024")
	watch.ends()
	if out := watch.out.String(); !strings.Contains(out, "joined    c\n") || strings.Contains(out, "joined    a\n") {
		t.Errorf("watch: %s", out)
	}

	proxy := inBackground(t, nil, "proxy", "--key-from", "path:1", "--listen", "127.0.0.1:0", "--agents", c.Addrs.HTTP, "--scope", "sfu")
	proxy.shows(proxy.problem, "following an agent")
	_, listens, _ := strings.Cut(proxy.problem.String(), "listen=")
	listens, _, _ = strings.Cut(listens, "\n")
	for i := range 10 {
		resp, err := http.Get(fmt.Sprintf("http://%s/key-%d", listens, i))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK { // c has no API address
			t.Errorf("key-%d: %s", i, resp.Status)
		}
	}
	proxy.ends()

	for name, want := range map[string]string{
		"web": `this node has no scope "web"; it has "sfu", "eu", "mcu"; make it with agent.Scope, or with --scope of roost agent`,
		"mcu": "no member of the scope can own anything: none of the 3 live members matches",
	} {
		for _, args := range [][]string{{"place", "k"}, {"owners", "k"}} {
			code, _, problem := roost(t, append(args, "--scope", name, "--addr", c.Base)...)
			if code != exitFailed || !strings.Contains(problem, want) {
				t.Errorf("%v in %s: %d %q, want %q", args, name, code, problem, want)
			}
		}
	}
	code, _, problem := roost(t, "watch", "--scope", "web", "--addr", c.Base)
	if code != exitFailed || !strings.Contains(problem, `no scope "web"`) {
		t.Errorf("watch: %d %q", code, problem)
	}
	code, _, problem = roost(t, "proxy", "--key-from", "path:1", "--rooms", "--scope", "sfu")
	if code != exitUsage || !strings.Contains(problem, "use only one of these flags") {
		t.Errorf("rooms and a scope: %d %q", code, problem)
	}
	code, _, problem = roost(t, "agent", "--id", "d", "--scope", "sfu=role:sfu", "--strategy", "least-partitions")
	if code != exitUsage || !strings.Contains(problem, "remembers owners, which scopes do not support") {
		t.Errorf("a strategy with a memory: %d %q", code, problem)
	}
}

// TestDoctorScopes: doctor --all names the agents that lack a scope, and the agents whose scope selects other members.
func TestDoctorScopes(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", append(calm(), "--label", "role=sfu", "--scope", "sfu=role:sfu", "--scope", "all=role:sfu")...)
	b := agent(t, "b", append(calm(), "--label", "role=sfu", "--join", a.Gossip, "--scope", "all=role:sfu")...)
	c := agent(t, "c", append(calm(), "--label", "role=web", "--join", a.Gossip, "--scope", "sfu=role:web", "--scope", "all=role:sfu")...)
	agree(t, a, b, c)
	eventually(t, func() error {
		_, out, problem := roost(t, "doctor", "--all", "--addr", c.Base, "--over", "1ms")
		for _, want := range []string{`no scope "sfu" at b`, `scope "sfu" has different tables: a | c`} {
			if !strings.Contains(out, "warn  scopes    "+want+"\n") {
				return fmt.Errorf("no %q in\n%s%s", want, out, problem)
			}
		}
		if strings.Contains(out, `scope "all"`) {
			return fmt.Errorf("a finding about the scope that all agents have:\n%s", out)
		}
		return nil
	})
}
