//go:build linux

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// TestRefused: the cluster rejects a node whose settings don't fit. The end of the node's log names the setting to
// change.
func TestRefused(t *testing.T) {
	t.Parallel()
	_, key := newKey(t)
	_, other := newKey(t)
	plain := agent(t, "plain", calm()...)
	keyed := agent(t, "keyed", append(calm(), "--key-file", key)...)
	for _, c := range []struct {
		name string
		seed *proc
		args []string
		says []string // the joiner
		seen []string // the seed's log
	}{
		{
			"partitions", plain,
			[]string{"--partitions", "64"},
			[]string{"setting partitions must be the same on all nodes, but it is 64 here and 1024 on plain#"},
			[]string{"refused a node with other settings", "setting partitions must be the same on all nodes, but it is 1024 here and 64 on x#"},
		},
		{
			"ttl", plain,
			[]string{"--ttl", "9m"},
			[]string{"setting ttl must be the same on all nodes, but it is 9m0s here and 10m0s on plain#"},
			[]string{"it is 10m0s here and 9m0s on x#"},
		},
		{
			"strategy", plain,
			[]string{"--strategy", "least-partitions+zones"},
			[]string{"setting strategy must be the same on all nodes, but it is least-partitions-1-3+zones here and rendezvous on plain#"},
			[]string{"it is rendezvous here and least-partitions-1-3+zones on x#"},
		},
		{
			"cluster", plain,
			[]string{"--cluster", "other"},
			[]string{"the cluster names differ", `"other"`},
			[]string{`"gossip from outside the cluster rejected"`, `"reason":"wrong_cluster","from":"127.0.0.1","over":"tcp"`, `"cluster":"other"`},
		},
		{
			"key at a plain seed", plain,
			[]string{"--key-file", key},
			[]string{"the gossip keys differ", "it uses no key, this node does"},
			[]string{`"reason":"wrong_key","from":"127.0.0.1","over":"tcp"`},
		},
		{
			"no key at a keyed seed", keyed, nil,
			[]string{"the gossip keys differ", "it uses a key, this node has none"},
			[]string{`"reason":"wrong_key","from":"127.0.0.1","over":"tcp"`},
		},
		{"another key", keyed, []string{"--key-file", other}, []string{"the gossip keys differ"}, []string{`"reason":"wrong_key"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := launch(t, "x", append(append(calm(), "--join", c.seed.Gossip), c.args...)...)
			x.Exits(exitFailed, append(c.says, "agent failed")...)
			c.seed.Logs(c.seen...)
		})
	}
	agree(t, plain)
	agree(t, keyed)
	for seed, wants := range map[*proc][]string{
		plain: {`gossip of another cluster, from 127.0.0.1 ("other", tcp, `, "gossip that no key of this node decrypts, from 127.0.0.1 (tcp, "},
		keyed: {"gossip that no key of this node decrypts, from 127.0.0.1 (tcp, "},
	} {
		_, out, _ := roostIn(t, map[string]string{"ROOST_ADDR": seed.Base}, "doctor", "--over", "1ms", "--output", "json")
		var d doctor.Diagnosis
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range wants {
			if !slices.ContainsFunc(d.Checks, func(c doctor.Check) bool {
				return c.Name == "gossip" && c.Status == doctor.Warn && strings.HasPrefix(c.Finding, want)
			}) {
				t.Errorf("doctor of %s does not say %q\n%s", seed.ID, want, out)
			}
		}
	}
}

// TestPortTaken: an agent whose port is taken names the setting to change. If its address belongs to another machine,
// it does not suggest that another agent is running there.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", calm()...)
	launch(t, "b", "--bind", a.Gossip).Exits(exitFailed, "cannot listen on "+a.Gossip+" (is another agent running there?)")
	launch(t, "c", "--http", a.Base).Exits(exitFailed, "--http "+a.Base+": cannot listen (is another agent running there?)")
	launch(t, "g", "--bind", "192.0.2.1:7946").Exits(exitFailed,
		"cannot listen on 192.0.2.1:7946 (this machine has no such address: bind to one that it has, and advertise")
	token := secretFile(t, strings.Repeat("t", 32))
	launch(t, "h", "--http", "192.0.2.1:8401", "--http-token-file", token).Exits(exitFailed,
		"--http 192.0.2.1:8401: cannot listen (this machine has no such address)")
	launch(t, "d", "--http", "0.0.0.0:0").Exits(exitUsage, `--http "0.0.0.0:0": other machines can reach this address`)
	off := agent(t, "e", "--http", "off", "--log-level", "error")
	if off.Base != settings.Off {
		t.Errorf("without HTTP, it logs that it serves HTTP at %s", off.Base)
	}
}

// TestTextLog: the text format of the log has the line that scripts wait for, too.
func TestTextLog(t *testing.T) {
	t.Parallel()
	p := launch(t, "a", append(calm(), "--log-format", "text")...)
	p.Logs(`msg="agent running" node=a gossip=127.0.0.1:`, " http=127.0.0.1:")
	p.Signal(syscall.SIGINT)
	p.Exits(0)
}
