package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestKeyRotation: five agents change their key while they look up keys and serve rooms. No lease ends, and no call
// fails. Afterwards, the agents reject the former key. No log shows a key.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	dir, redis := t.TempDir(), redistest.Start(t)
	former, next := succeeds(t, "keygen"), succeeds(t, "keygen")
	write := func(id, keys string) string { return replaceFile(t, filepath.Join(dir, id), keys) }
	settings := append(brisk(), "--redis", redis.URL(), "--capacity", "1000", "--report-load", "--log-level", "debug")
	var agents []*proc
	for i := range 5 {
		id := fmt.Sprint("node-", i)
		args := append(settings, "--key-file", write(id, former))
		if i > 0 {
			args = append(args, "--join", agents[0].Gossip)
		}
		agents = append(agents, agent(t, id, args...))
	}
	agree(t, agents...)

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i, a := range agents {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				pause(ctx, 5*time.Millisecond)
				placed, err := a.Place(ctx, fmt.Sprint(n))
				if err == nil {
					_, err = a.ResolveRoom(ctx, fmt.Sprint("room-", i, "-", n%50), affinity.Demand{Size: 2})
				}
				if err == nil && placed.Stale {
					err = errors.New("by a stale table")
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("call %d at %s: %v", n, a.ID, err)
					return
				}
			}
		})
	}
	for step, keys := range []string{former + next, next + former, next} {
		for _, a := range agents {
			write(a.ID, keys)
			a.Signal(syscall.SIGHUP)
			eventually(t, func() error {
				if n := strings.Count(a.Text(), `"msg":"gossip keys read again"`); n != step+1 {
					return fmt.Errorf("%s has read its keys %d times, want %d", a.ID, n, step+1)
				}
				return nil
			})
		}
		for _, a := range agents {
			eventually(t, func() error { return showsKeys(t, a, keys) })
		}
	}
	write("node-0", "nonsense\n")
	agents[0].Signal(syscall.SIGHUP)
	agents[0].Logs("reload failed; settings unchanged")
	stop()
	clients.Wait()
	agree(t, agents...)
	for _, a := range agents {
		for _, bad := range []string{
			"member left", "member lost", "stalled", "unable to decrypt", "undecryptable",
			strings.TrimSpace(former), strings.TrimSpace(next),
		} {
			if strings.Contains(a.Text(), bad) {
				t.Errorf("%s logs %q", a.ID, bad)
			}
		}
		if m, err := a.Members(t.Context()); err != nil || len(m.Members) != len(agents) {
			t.Errorf("%s sees %d members, %v", a.ID, len(m.Members), err)
		}
	}
	old := launch(t, "old", append(brisk(), "--key-file", write("old", former), "--join", agents[0].Gossip)...)
	old.Exits(exitFailed, "the gossip keys differ")
	if m, err := agents[0].Members(t.Context()); err != nil || len(m.Members) != len(agents) {
		t.Errorf("with the former key: %d members, %v", len(m.Members), err)
	}
	fresh := agent(t, "new", append(settings, "--key-file", write("new", next), "--join", agents[1].Gossip)...)
	agree(t, append(agents, fresh)...)
}

// TestKeysOverNetwork: commands change the key of a cluster, without a signal. No lease ends, and no call fails. The
// agents write their key files, so they still have the new key after a restart. The commands name a member without an
// HTTP API until its key file has been changed by hand.
func TestKeysOverNetwork(t *testing.T) {
	t.Parallel()
	former := succeeds(t, "keygen")
	changeKeys(t, former, printOf(t, former))
}

// TestFirstKey: a cluster without a key gets its first key in the same three steps.
func TestFirstKey(t *testing.T) {
	t.Parallel()
	changeKeys(t, cluster.PlainText+"\n", cluster.PlainText)
}

// changeKeys changes the key of a cluster. Its key files have the line former, with the fingerprint one.
func changeKeys(t *testing.T, former, one string) {
	dir := t.TempDir()
	next := succeeds(t, "keygen")
	two := printOf(t, next)
	token := secretFile(t, "token\n")
	start := func(id string, more ...string) *proc {
		file := filepath.Join(dir, id)
		if !exists(file) {
			replaceFile(t, file, former)
		}
		return agent(t, id, append(append(brisk(), "--key-file", file, "--http-token-file", token, "--log-level", "debug"), more...)...)
	}
	a := start("a")
	b, c := start("b", "--join", a.Gossip), start("c", "--join", a.Gossip)
	silent := start("silent", "--join", a.Gossip, "--http", "off", "--weight", "1")
	agents := []*proc{a, b, c}
	sees := func(n int) {
		t.Helper()
		for _, p := range agents {
			eventually(t, func() error {
				m, err := p.Members(t.Context())
				if err == nil && (len(m.Members) != n || !m.Converged) {
					err = fmt.Errorf("%s sees %d members, converged: %v", p.ID, len(m.Members), m.Converged)
				}
				return err
			})
		}
	}
	sees(4)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for _, p := range agents {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				pause(ctx, 5*time.Millisecond)
				if placed, err := p.Place(ctx, fmt.Sprint(n)); ctx.Err() == nil && (err != nil || placed.Stale) {
					t.Errorf("call %d at %s: stale %v, %v", n, p.ID, placed.Stale, err)
					return
				}
			}
		})
	}
	nextFile := secretFile(t, next)
	keys := func(args ...string) (int, string) {
		code, out, problem := roost(t, append([]string{"keys", "--addr", b.Base, "--token-file", token}, args...)...)
		return code, out + problem
	}
	if code, out := keys("--use", two); code != exitFailed || !strings.Contains(out, "no gossip key with this fingerprint: install it first") {
		t.Errorf("a key that no member has is used: %d %s", code, out)
	}
	if code, out := keys("--remove", one); code != exitFailed || !strings.Contains(out, "used to send") {
		t.Errorf("the key in use is removed: %d %s", code, out)
	}
	for _, step := range []struct {
		args     []string
		file     string // afterwards
		sentence string
	}{
		{[]string{"--install", nextFile}, former + next, "All 4 agents accept " + two + ". Next: roost keys --use " + two},
		{[]string{"--use", two}, next + former, "All 4 agents send with " + two + ". Next: roost keys --remove " + one},
		{[]string{"--remove", one}, next, "All 4 agents have dropped " + one + "."},
	} {
		code, out := 0, ""
		eventually(t, func() error { // a step can be repeated if an agent takes longer than 5 s on a busy machine
			if code, out = keys(step.args...); strings.Contains(out, "no answer from") {
				return errors.New(out)
			}
			return nil
		})
		if code != exitFailed || !strings.Contains(out, "The step failed at silent: ") || !strings.Contains(out, "reports no HTTP address") {
			t.Errorf("%v: %d %s", step.args, code, out)
		}
		replaceFile(t, filepath.Join(dir, "silent"), step.file)
		eventually(t, func() error {
			if code, out := keys(step.args...); code != exitOK || !strings.Contains(out, step.sentence) {
				return fmt.Errorf("%d %s", code, out)
			}
			return nil
		})
		for _, p := range agents {
			if b, err := os.ReadFile(filepath.Join(dir, p.ID)); err != nil || string(b) != step.file {
				t.Errorf("after %v the file of %s has %d keys, %v", step.args, p.ID, strings.Count(string(b), "\n"), err)
			}
			_, out, _ := roost(t, "doctor", "--addr", p.Base, "--over", "100ms")
			if strings.Contains(out, "warn  key") || strings.Contains(out, "warn  settings") {
				t.Errorf("after %v: %s", step.args, out)
			}
		}
	}
	stop()
	clients.Wait()
	sees(4)
	c.Signal(syscall.SIGTERM)
	c.Exits(exitOK)
	agents[2] = start("c", "--join", a.Gossip)
	sees(4)
	for _, p := range append(agents, silent) {
		for _, bad := range []string{
			"member lost", "stalled", "unable to decrypt", "undecryptable", strings.TrimSpace(former),
			strings.TrimSpace(next),
		} {
			if bad != cluster.PlainText && strings.Contains(p.Text(), bad) {
				t.Errorf("%s logs %q", p.ID, bad)
			}
		}
	}
	a.Logs("gossip keys changed by a call", two)
	outsider := launch(t, "outsider", append(brisk(), "--join", a.Gossip)...)
	outsider.Exits(exitFailed, "the gossip keys differ")

	// The command must not remove a key that a lost member may still need.
	if err := silent.Kill(); err != nil {
		t.Fatal(err)
	}
	sees(3)
	eventually(t, func() error {
		code, out := keys("--remove", one)
		if code != exitFailed || !strings.Contains(out, "silent stopped without leaving") || !strings.Contains(out, "--despite-lost") {
			return fmt.Errorf("with a lost member: %d %s", code, out)
		}
		return nil
	})
	code, out := keys("--remove", one, "--despite-lost")
	if code != exitOK || !strings.Contains(out, "Change the key file of silent by hand") {
		t.Errorf("despite the lost member: %d %s", code, out)
	}
}

// TestKeysNotSent: the command does not send a key to an agent if someone on the network could read it, or if the agent
// does not require a token. It rejects steps that make no sense.
func TestKeysNotSent(t *testing.T) {
	t.Parallel()
	token, key := secretFile(t, "token\n"), secretFile(t, succeeds(t, "keygen"))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--install", key, "--addr", "192.0.2.1:1"}, exitUsage, "the key was not sent to the agent at 192.0.2.1:1, which the network could read"},
		{[]string{"--install", key, "--addr", "192.0.2.1:1", "--token-file", token}, exitUsage, "the network could read the token"},
		{[]string{"--install", key, "--use", "0123abcd"}, exitUsage, "one at a time"},
		{[]string{"--use", "0123ABCD"}, exitUsage, "want the fingerprint of a key, 8 hexadecimal digits"},
		{[]string{"--remove", ""}, exitUsage, "want the fingerprint"},
		{[]string{"--install", token}, exitUsage, "does not contain a key in base64"},
		{[]string{"--install", ""}, exitUsage, "the value is empty"},
		{[]string{"--install", secretFile(t, succeeds(t, "keygen")+succeeds(t, "keygen"))}, exitUsage, "the file has 2 keys"},
	} {
		code, _, problem := roostIn(t, map[string]string{}, append([]string{"keys", "--timeout", "2s"}, c.args...)...)
		if code != c.code || !strings.Contains(problem, c.want) {
			t.Errorf("%v: %d %s, want %d %s", c.args, code, problem, c.code, c.want)
		}
	}
	open := agent(t, "open", append(calm(), "--key-file", secretFile(t, succeeds(t, "keygen")))...)
	code, _, problem := roost(t, "keys", "--addr", open.Base, "--install", key)
	if code != exitFailed || !strings.Contains(problem, "give the agent a token") {
		t.Errorf("an agent without a token: %d %s", code, problem)
	}
	plain := agent(t, "plain", append(calm(), "--http-token-file", token)...)
	for _, c := range []struct{ step, key, want string }{
		{"--install", key, "not saved: there is no --key-file"},
		{"--remove", cluster.PlainText, ""},
	} {
		code, out, problem := roost(t, "keys", "--addr", plain.Base, "--token-file", token, c.step, c.key)
		done := c.want != ""
		if (code == exitOK) != done || !strings.Contains(out, c.want) || !done && !strings.Contains(problem, "used to send by this node") {
			t.Errorf("an agent without a key, %s: %d %s%s", c.step, code, out, problem)
		}
	}
}

func printOf(t *testing.T, key string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	if err != nil {
		t.Fatal(err)
	}
	return cluster.KeyFingerprint(b)
}

// showsKeys returns nil if one agent's roost keys shows the keys of a file for all members.
func showsKeys(t *testing.T, of *proc, file string) error {
	t.Helper()
	var prints []string
	for line := range strings.FieldsSeq(file) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		prints = append(prints, cluster.KeyFingerprint(key))
	}
	code, out, problem := roost(t, "keys", "--addr", of.Base, "--output", "json")
	var got keyring
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		return fmt.Errorf("exit code %d, %s: %w", code, problem, err)
	}
	for _, m := range got.Members {
		if m.SendsWith != prints[0] || !slices.Equal(m.Accepts, prints[1:]) {
			return fmt.Errorf("%s shows %+v, want %q", of.ID, m, prints)
		}
	}
	if len(got.Members) != 5 {
		return fmt.Errorf("%s shows %d members", of.ID, len(got.Members))
	}
	return nil
}

// TestAdviceOnKeys tests the advice of roost keys at each step of a key change, and after skipped steps.
func TestAdviceOnKeys(t *testing.T) {
	node := func(id lease.NodeID, sends string, accepts ...string) keysOf { return keysOf{id, sends, accepts} }
	const first = "Make the new key the first line on all nodes before you remove the old key."
	for name, c := range map[string]struct {
		all  []keysOf
		want []string
	}{
		"no key": {
			[]keysOf{node("a", ""), node("b", "")},
			[]string{"No member reports a gossip key: the cluster has none, or its release does not report keys."},
		},
		"one key": {[]keysOf{node("a", "1"), node("b", "1")}, []string{"1 is the key that all members send with."}},
		"one has the next": {[]keysOf{node("a", "1", "2"), node("b", "1")}, []string{
			"1 is the key that all members send with.", "2 is accepted by a, but not by b: if it is the new key, add it there; otherwise remove it everywhere.",
		}},
		"all have the next": {[]keysOf{node("a", "1", "2"), node("b", "1", "2")}, []string{
			"1 is the key that all members send with.",
			"2 is accepted by all members, but not used to send: if it is the new key, make it the first line; otherwise remove it.",
		}},
		"one sends with the next": {[]keysOf{node("a", "2", "1"), node("b", "1", "2")}, []string{
			"1 is accepted by all members, and used by b to send.", "2 is accepted by all members, and used by a to send.", first,
		}},
		"one has removed the former": {[]keysOf{node("a", "2"), node("b", "2", "1")}, []string{
			"1 is accepted by b, but not by a: if it is the new key, add it there; otherwise remove it everywhere.", "2 is the key that all members send with.",
		}},
		"too early": {[]keysOf{node("a", "2", "1"), node("b", "1"), node("c", "")}, []string{
			"No key is reported by c.", "1 is accepted by all members, and used by b to send.",
			"2 is used by a to send, but not accepted by b: add it there now.", first,
		}},
		"seven nodes": {[]keysOf{
			node("a", "1"), node("b", "1"), node("c", "1"), node("d", "1"), node("e", "1"), node("f", "1"),
			node("g", "1", "2"),
		}, []string{
			"1 is the key that all members send with.",
			"2 is accepted by g, but not by a, b, c, d, e, 1 more: if it is the new key, add it there; otherwise remove it everywhere.",
		}},
	} {
		if diff := cmp.Diff(c.want, adviceOnKeys(c.all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
