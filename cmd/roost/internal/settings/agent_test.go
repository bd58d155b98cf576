package settings

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/spf13/cobra"
)

// load reads all sources as `roost agent` does. It writes the files to a new directory, and replaces DIR in any text
// with the path of this directory.
func load(t *testing.T, args []string, env, files map[string]string) (Agent, error) {
	t.Helper()
	dir := t.TempDir()
	here := strings.NewReplacer("DIR", dir)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(here.Replace(content)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := &cobra.Command{}
	AddFlags(cmd, new(Agent).Settings())
	given := make([]string, len(args))
	for i := range args {
		given[i] = here.Replace(args[i])
	}
	if err := cmd.ParseFlags(given); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return here.Replace(env[name]) }
	a, err := LoadAgent(Sources{Flags: cmd.Flags(), Getenv: getenv}, "host")
	if err != nil {
		err = UsageError(strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	return a, err
}

func mustLoad(t *testing.T, args []string, env, files map[string]string) Agent {
	t.Helper()
	a, err := load(t, args, env, files)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDefaults(t *testing.T) {
	got := mustLoad(t, nil, nil, nil)
	want := Agent{
		Cluster: cluster.Config{
			ID:          "host",
			Bind:        "127.0.0.1:7946",
			Cluster:     "roost",
			Partitions:  1024,
			Strategy:    placement.Rendezvous(),
			MaxSkew:     5 * time.Second,
			Weight:      100,
			MinMembers:  1,
			Split:       cluster.SplitContinue,
			SplitForget: 10 * time.Minute,
		},
		HTTP: "127.0.0.1:8401", LogFormat: "text",
	}
	if diff := cmp.Diff(want, got, allowed); diff != "" {
		t.Error(diff)
	}
}

var allowed = cmp.Options{
	cmpopts.IgnoreUnexported(Agent{}), cmpopts.IgnoreFields(Agent{}, "KeyFile"), cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Prefix{}),
	cmp.Comparer(func(a, b placement.Strategy) bool { return a.Name() == b.Name() }),
}

// TestSources sets one setting in several sources. For each kind of setting, the first source must win.
func TestSources(t *testing.T) {
	file := "id: f\njoin: [f:1, f:2]\nttl: 30s\nlabel: {from: file, a: 'b,c'}\n" +
		"start-draining: true\npartitions: 64\nstrategy: bounded-rendezvous-150\nhttp: off\n"
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		want func(*Agent)
	}{
		{"file over default", []string{"--config", "DIR/c"}, nil, func(*Agent) {}},
		{"path of the file from the environment", nil, map[string]string{"ROOST_CONFIG": "DIR/c"}, func(*Agent) {}},
		{
			"environment over file",
			[]string{"--config=DIR/c"},
			map[string]string{
				"ROOST_ID":             "e",
				"ROOST_JOIN":           "e:1, e:2,",
				"ROOST_TTL":            "40s",
				"ROOST_LABEL":          "from=env",
				"ROOST_START_DRAINING": "false",
			},
			func(o *Agent) {
				o.Cluster.ID, o.Cluster.Join, o.Cluster.LeaseTTL = "e", []string{"e:1", "e:2"}, 40*time.Second
				o.Cluster.Labels, o.Cluster.StartDraining = map[string]string{"from": "env"}, false
			},
		},
		{
			"flag over environment over file",
			[]string{
				"--config=DIR/c", "--id", "g", "--join=g:1,g:2", "--join", "g:3", "--ttl=50s", "--label=from=flag",
				"--label=n=1", "--start-draining=false",
			},
			map[string]string{
				"ROOST_ID":             "e",
				"ROOST_JOIN":           "e:1",
				"ROOST_TTL":            "40s",
				"ROOST_LABEL":          "from=env",
				"ROOST_START_DRAINING": "true",
				"ROOST_PARTITIONS":     "128",
			},
			func(o *Agent) {
				o.Cluster.ID, o.Cluster.Join, o.Cluster.LeaseTTL = "g", []string{"g:1", "g:2", "g:3"}, 50*time.Second
				o.Cluster.Labels, o.Cluster.StartDraining = map[string]string{"from": "flag", "n": "1"}, false
				o.Cluster.Partitions = 128
			},
		},
		{"an empty variable counts as none", []string{"--config=DIR/c"}, map[string]string{"ROOST_ID": "", "ROOST_JOIN": ""}, func(*Agent) {}},
		{"an empty flag counts", []string{"--config=DIR/c", "--join="}, nil, func(o *Agent) { o.Cluster.Join = nil }},
		{"the last flag counts", []string{"--config=DIR/c", "--id=x", "--id=y"}, nil, func(o *Agent) { o.Cluster.ID = "y" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := Agent{
				Cluster: cluster.Config{
					ID:            "f",
					Bind:          "127.0.0.1:7946",
					Cluster:       "roost",
					Partitions:    64,
					Strategy:      placement.Bounded(150),
					MaxSkew:       5 * time.Second,
					Weight:        100,
					MinMembers:    1,
					Split:         cluster.SplitContinue,
					SplitForget:   10 * time.Minute,
					Join:          []string{"f:1", "f:2"},
					LeaseTTL:      30 * time.Second,
					StartDraining: true,
					Labels:        map[string]string{"from": "file", "a": "b,c"},
				},
				HTTP: Off, LogFormat: "text",
			}
			c.want(&want)
			got := mustLoad(t, c.args, c.env, map[string]string{"c": file})
			if diff := cmp.Diff(want, got, allowed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEverySettingHasEverySource gives each setting the same value in every source.
func TestEverySettingHasEverySource(t *testing.T) {
	values := map[string]string{
		"id":                   "n",
		"bind":                 "127.0.0.1:1",
		"scope":                "sfu=role:sfu,eu=zone:eu-1",
		"advertise":            "10.0.0.1:1",
		"join":                 "a:1",
		"bootstrap":            "true",
		"cluster":              "c",
		"min-members":          "3",
		"split":                "majority",
		"split-forget":         "3m",
		"handoff":              "30s",
		"key-file":             "DIR/key",
		"require-key":          "true",
		"gossip-allow":         "10.0.0.0/8,fd00::/8",
		"gossip-nodes":         "5",
		"partitions":           "7",
		"strategy":             "least-partitions-2-5+zones",
		"network":              "wan",
		"heartbeat":            "1s",
		"ttl":                  "7s",
		"max-skew":             "1s",
		"api-addr":             "x",
		"zone":                 "z",
		"label":                "a=b",
		"capacity":             "9",
		"resources":            "cpu=800,egress_mbit=10000",
		"weight":               "3",
		"slow-start":           "2m",
		"auto-weight":          "true",
		"start-draining":       "true",
		"app-version":          "v1",
		"no-flap-damping":      "true",
		"http":                 "0.0.0.0:0",
		"http-token-file":      "DIR/token",
		"http-token-reads":     "true",
		"http-read-token-file": "DIR/look",
		"http-host":            "roost.example",
		"http-tls-cert":        "/cert",
		"http-tls-key":         "/certkey",
		"http-client-ca":       "/ca",
		"shutdown-delay":       "4s",
		"log-format":           "json",
		"log-level":            "debug",
		"exit-on-stdin-close":  "true",
		"redis":                "redis://:hunter2@r:1/0",
		"redis-file":           "DIR/redis",
		"pin-ttl":              "9m",
		"redis-timeout":        "300ms",
		"soft-ceiling":         "70",
		"hard-ceiling":         "90",
		"rebalance":            "85",
		"limit-growth":         "true",
		"strict-ceiling":       "true",
		"report-load":          "true",
	}
	files := map[string]string{"key": "MDEyMzQ1Njc4OWFiY2RlZg==\n", "token": "secret\n", "look": "look\n", "redis": "redis://:hunter3@r:1/0\n"}
	everySource(t, values, files, "redis", "scope") // redis excludes redis-file, and scope excludes this strategy
	everySource(t, values, files, "redis-file", "strategy")
}

func everySource(t *testing.T, values, files map[string]string, without ...string) {
	t.Helper()
	files = maps.Clone(files)
	args, env, file := []string(nil), map[string]string{}, ""
	for _, s := range new(Agent).Settings() {
		if s.Name == "config" || slices.Contains(without, s.Name) {
			continue
		}
		v, ok := values[s.Name]
		if !ok {
			t.Fatalf("no value for --%s: add one here", s.Name)
		}
		args = append(args, "--"+s.Name+"="+v)
		env[Variable(s.Name)] = v
		file += s.Name + ": " + v + "\n"
	}
	flags := mustLoad(t, args, nil, files)
	if string(flags.Cluster.Key) != "0123456789abcdef" || !slices.Equal(flags.Tokens, []string{"secret"}) ||
		flags.Cluster.Network != cluster.WAN || !flags.StdinCloses {
		t.Errorf("by flags: %+v", flags)
	}
	of := map[string]string{"redis": flags.Cluster.Strategy.Name(), "redis-file": fmt.Sprint(flags.Scopes)}[without[0]]
	wantOf := map[string]string{
		"redis":      "least-partitions-2-5+zones",
		"redis-file": "[{sfu role sfu} {eu zone eu-1}]",
	}[without[0]]
	if of != wantOf {
		t.Errorf("without %s: %s, want %s", without, of, wantOf)
	}
	want := affinity.Config{Budget: 300 * time.Millisecond, PinTTL: 9 * time.Minute, SoftCeiling: 70, HardCeiling: 90, Rebalance: 85, LimitGrowth: true, StrictCeiling: true, ReportLoad: true}
	store := map[string]string{"redis": "redis://:hunter3@r:1/0", "redis-file": "redis://:hunter2@r:1/0"}[without[0]]
	if diff := cmp.Diff(want, flags.Rooms); diff != "" || flags.Store != store {
		t.Errorf("of Redis %q: %s", flags.Store, diff)
	}
	if diff := cmp.Diff(flags, mustLoad(t, nil, env, files), allowed); diff != "" {
		t.Error("by environment: ", diff)
	}
	files["c"] = file
	if diff := cmp.Diff(flags, mustLoad(t, []string{"--config=DIR/c"}, nil, files), allowed); diff != "" {
		t.Error("by file: ", diff)
	}
}

// TestManyScopes: an agent accepts as many scopes as the cluster package does.
func TestManyScopes(t *testing.T) {
	var args []string
	for i := range cluster.MaxScopes {
		args = append(args, fmt.Sprintf("--scope=s%d=role:sfu", i))
	}
	if a := mustLoad(t, args, nil, nil); len(a.Scopes) != cluster.MaxScopes ||
		!a.Scopes[0].Match(&cluster.Member{Profile: lease.Profile{Labels: map[string]string{"role": "sfu"}}}) ||
		a.Scopes[0].Match(&cluster.Member{}) {
		t.Errorf("the scopes are %v", a.Scopes)
	}
	_, err := load(t, append(args, "--scope=more=role:sfu"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), cluster.ErrManyScopes.Error()) {
		t.Errorf("one more: %v", err)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want string // lines of the error
	}{
		{"no duration", []string{"--ttl=7x"}, nil, "", `--ttl "7x": want a duration such as 500ms or 6s`},
		{"zero", []string{"--heartbeat=0s"}, nil, "", `--heartbeat "0s": want a duration above zero`},
		{"too short", []string{"--heartbeat=1ms"}, nil, "", `--heartbeat "1ms": HeartbeatInterval is 1ms, at least 10ms`},
		{"too long", []string{"--ttl=2h"}, nil, "", `--ttl "2h": LeaseTTL is 2h0m0s, at most 1h`},
		{
			"by the environment", nil,
			map[string]string{"ROOST_PARTITIONS": "-1"},
			"",
			`ROOST_PARTITIONS "-1": want a whole number from 1 to 65536`,
		},
		{"by the file", nil, nil, "id: a\n\npartitions: many\n", `DIR/c:3: partitions "many": want a whole number from 1 to 65536`},
		{"id", []string{"--id=a b"}, nil, "", `--id "a b": node id "a b": byte ' ' is not one of [A-Za-z0-9._:-] or a square bracket`},
		{"empty id", []string{"--id="}, nil, "", `--id "": the value is empty`},
		{"empty key file", []string{"--key-file="}, nil, "", `--key-file "": the value is empty`},
		{"empty key file in the file", nil, nil, "key-file: ''", `DIR/c:1: key-file "": the value is empty`},
		{"empty file", []string{"--config="}, nil, "", `--config "": the value is empty`},
		{"bind", []string{"--bind=7946"}, nil, "", `--bind "7946": Bind "7946" is not host:port`},
		{
			"join", nil,
			map[string]string{"ROOST_JOIN": "a:1,b"},
			"",
			`ROOST_JOIN "a:1,b": Join "b" is neither host:port nor the name of an SRV record such as _roost._udp.example.org`,
		},
		{
			"network",
			[]string{"--gossip-allow=10.0.0.0/8,10.0.0.1"},
			nil, "",
			`--gossip-allow "10.0.0.0/8,10.0.0.1": "10.0.0.1" is not a network such as 10.0.0.0/8`,
		},
		{"label", []string{"--label=a=1", "--label=b"}, nil, "", `--label "a=1,b": "b" does not have the form name=value`},
		{"resource", []string{"--resources=cpu=800,disk"}, nil, "", `--resources "cpu=800,disk": "disk" does not have the form name=N, such as cpu=800`},
		{"resource that is no number", []string{"--resources=cpu=8x"}, nil, "", `--resources "cpu=8x": "cpu=8x" does not have the form name=N, such as cpu=800`},
		{"resource twice", []string{"--resources=cpu=8,cpu=9"}, nil, "", `--resources "cpu=8,cpu=9": resource "cpu" is given twice`},
		{"resource of zero", []string{"--resources=cpu=0"}, nil, "", `--resources "cpu=0": Resources has 0 for cpu; it must be at least 1`},
		{"resources without capacity", []string{"--resources=cpu=8"}, nil, "", `--resources "cpu=8": this needs --capacity, because the load is a part of it`},
		{"label twice", []string{"--label=a=1,a=2"}, nil, "", `--label "a=1,a=2": label "a" is given twice`},
		{
			"scope",
			[]string{"--scope=sfu=role:sfu,eu=zone"},
			nil, "",
			`--scope "sfu=role:sfu,eu=zone": "eu=zone" does not have the form name=label:value, such as sfu=role:sfu or eu=zone:eu-1`,
		},
		{
			"scope without a name", nil,
			map[string]string{"ROOST_SCOPE": "role:sfu"},
			"",
			`ROOST_SCOPE "role:sfu": "role:sfu" does not have the form name=label:value, such as sfu=role:sfu or eu=zone:eu-1`,
		},
		{"scope twice", nil, nil, "scope: [a=role:x, a=role:y]", `DIR/c:1: scope "a=role:x,a=role:y": scope "a" is given twice`},
		{
			"scope and strategy",
			[]string{"--scope=sfu=role:sfu"},
			nil, "strategy: least-partitions",
			`--scope "sfu=role:sfu": strategy "least-partitions-1-3": the agent's strategy remembers owners, which scopes do not support: use a strategy without a memory, such as Rendezvous or Bounded`,
		},
		{"weight 0", []string{"--weight=0"}, nil, "", `--weight "0": to join without owning anything, use --start-draining`},
		{"weight", []string{"--weight=1000001"}, nil, "", `--weight "1000001": want a whole number from 1 to 1000000`},
		{"strategy", []string{"--strategy=best"}, nil, "", `--strategy "best": there is no strategy "best"; the strategies are ` + placement.Strategies},
		{
			"parameters of the strategy", nil, nil, "id: a\nstrategy: bounded-rendezvous-99",
			`DIR/c:2: strategy "bounded-rendezvous-99": strategy "bounded-rendezvous-99" has parameters out of bounds; the nearest is bounded-rendezvous-100`,
		},
		{"network", []string{"--network=moon"}, nil, "", `--network "moon": want lan, wan or local`},
		{"level", []string{"--log-level=loud"}, nil, "", `--log-level "loud": want debug, info, warn or error`},
		{"format", nil, map[string]string{"ROOST_LOG_FORMAT": "xml"}, "", `ROOST_LOG_FORMAT "xml": want text, json`},
		{"switch", nil, nil, "bootstrap: 7", `DIR/c:1: bootstrap "7": want true or false`},
		{"ttl and heartbeat", []string{"--ttl=2s"}, nil, "", `--ttl "2s": ttl (2s) must be at least 1.3 times heartbeat (2s)`},
		{
			"heartbeat and ttl", nil, nil, "network: local\nheartbeat: 5s",
			`DIR/c:2: heartbeat "5s": ttl (6s) must be at least 1.3 times heartbeat (5s)`,
		},
		{"http", []string{"--http=8401"}, nil, "", `--http "8401": want HOST:PORT`},
		{"http port", []string{"--http=127.0.0.1:http"}, nil, "", `--http "127.0.0.1:http": port "http" is not a number from 0 to 65535`},
		{
			"open http",
			[]string{"--http=:8401"},
			nil, "",
			`--http ":8401": other machines can reach this address: set --http-token-file or --http-client-ca, or use 127.0.0.1`,
		},
		{
			"open http by name", nil, nil, "http: example.org:1",
			`DIR/c:1: http "example.org:1": other machines can reach this address: set --http-token-file or --http-client-ca, or use 127.0.0.1`,
		},
		{
			"key without certificate",
			[]string{"--http-tls-key=k"},
			nil, "",
			`--http-tls-key "k": --http-tls-cert and --http-tls-key belong together`,
		},
		{
			"client CA without TLS", nil, nil, "http-client-ca: ca",
			`DIR/c:1: http-client-ca "ca": clients show certificates only over TLS: set --http-tls-cert and --http-tls-key`,
		},
		{
			"reads without token",
			[]string{"--http-token-reads"},
			nil, "",
			`--http-token-reads "true": this needs --http-token-file, because without it anyone may change the node`,
		},
		{
			"weight without a capacity",
			[]string{"--auto-weight"},
			nil, "",
			`--auto-weight "true": this needs --capacity, because it compares the load with the capacity`,
		},
		{"no key", nil, nil, "require-key: true", `DIR/c:1: require-key "true": there is no --key-file; generate a key with roost keygen`},
		{"unknown key", nil, nil, "ttl: 6s\nheartbeet: 2s\n", `DIR/c:2: unknown key "heartbeet"; did you mean heartbeat?`},
		{"file in file", nil, nil, "config: x", `DIR/c:1: unknown key "config"`},
		{"key twice", nil, nil, "id: a\nid: b", `DIR/c:2: key "id" is also on line 1`},
		{"no value", nil, nil, "zone:", `DIR/c:1: zone: the value is missing`},
		{"no duration", nil, nil, "ttl: ~", `DIR/c:1: ttl: the value is missing`},
		{"list for one", nil, nil, "id: [a, b]", `DIR/c:1: id "a,b": want one value, not a list`},
		{"nested", nil, nil, "join: [[a]]", `DIR/c:1: join: lists and mappings must not be nested`},
		{"no mapping", nil, nil, "- id", `DIR/c:1: want lines of the form key: value`},
		{"two documents", nil, nil, "id: a\n---\nid: b", `DIR/c: line 2: a second YAML document begins; want only one`},
		{"no YAML", nil, nil, "id: [", `DIR/c: yaml: line 1: did not find expected node content`},
		{
			"ceilings",
			[]string{"--redis=redis://h", "--soft-ceiling=60", "--hard-ceiling=50"},
			nil, "",
			"HardCeiling (50 %) must not be below SoftCeiling (60 %)",
		},
		{"ceiling", []string{"--soft-ceiling=0"}, nil, "", `--soft-ceiling "0": want a whole number from 1 to 1000`},
		{"pin TTL", []string{"--redis=redis://h", "--pin-ttl=1ms"}, nil, "", "PinTTL is 1ms; it must be at least 1s"},
		{"no file", []string{"--config=DIR/none"}, nil, "", `--config "DIR/none": open DIR/none: no such file or directory`},
		{"no key file", []string{"--key-file=DIR/none"}, nil, "", `--key-file "DIR/none": open DIR/none: no such file or directory`},
		{
			"several at once",
			[]string{"--ttl=x", "--http=0.0.0.0:1"},
			map[string]string{"ROOST_BIND": "x"},
			"wieght: 7\nweight: no\n",
			`5 problems:
  ROOST_BIND "x": Bind "x" is not host:port
  DIR/c:2: weight "no": want a whole number from 1 to 1000000
  --ttl "x": want a duration such as 500ms or 6s
  DIR/c:1: unknown key "wieght"; did you mean weight?
  --http "0.0.0.0:1": other machines can reach this address: set --http-token-file or --http-client-ca, or use 127.0.0.1`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var files map[string]string
			if c.file != "" {
				files = map[string]string{"c": c.file}
				c.args = append(c.args, "--config=DIR/c")
			}
			_, err := load(t, c.args, c.env, files)
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", err, c.want)
			}
		})
	}
}
