package tour

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// TestAgreed: if something prevents the agents from agreeing, the tour waits, and names the reason when it gives up.
func TestAgreed(t *testing.T) {
	sound := all(func(*view) {})
	for _, c := range []struct {
		name, table string
		damage      func(views []view)
		upset       func(s scene)
		why         string
	}{
		{"all is well", "abab", sound, func(scene) {}, ""},
		{"a member is missing", "abab", one(1, func(v *view) { delete(v.members, "a") }), func(scene) {}, "b does not see a"},
		{"a member should be gone", "aaaa", sound, func(s scene) { s.nodes[1].state = lease.Left }, "a still sees b"},
		{"a member drains", "aaaa", sound, func(s scene) { s.nodes[1].state = lease.Draining }, ""},
		{"it owns still", "abab", sound, func(s scene) { s.nodes[1].state = lease.Draining }, "belong to [a b], and not to [a]"},
		{"it owns nothing yet", "aaaa", sound, func(scene) {}, "belong to [a], and not to [a b]"},
		{"nobody owns", "ab.b", sound, func(scene) {}, "belong to [ a b], and not to [a b]"},
		{"another table", "abab", one(1, func(v *view) { v.digest = 0xbeef }), func(scene) {}, "b has a different table than a"},
		{"silence", "abab", sound, func(s scene) { s.agents["b"].Set("GET /v1/members", nil) }, "b does not answer"},
		{"silence of the first", "abab", sound, func(s scene) { s.nodes[0].client.Base = "127.0.0.1:1" }, "a: clusterhttp: no agent answers"},
		{"the first hangs", "abab", sound, func(s scene) {
			s.agents["a"].Set("GET /v1/partitions", func(int) any { <-time.After(callTime + time.Second); return nil })
		}, "a: clusterhttp: no response yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, views := newScene(t, ab, c.table, nil), fleet(ab, c.table, nil)
			c.damage(views)
			s.set(views)
			c.upset(s)
			ctx, since := s.untilItWaits(t)
			_, err := s.agreed(ctx, since, "agree")
			if c.why == "" && err != nil || c.why != "" && (!errors.Is(err, errWaits) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		})
	}
}

// TestAgreedTooLate: the step's time runs out just when the agents have agreed.
func TestAgreedTooLate(t *testing.T) {
	s := newScene(t, ab, "abab", nil)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.agents["b"].Set("GET /v1/stats", func(int) any {
		cancel(enough)
		return clusterhttp.Stats{Self: "b", State: "active", Settings: clusterhttp.Settings{Cluster: "demo"}}
	})
	err := s.take(ctx, func(ctx context.Context) error {
		_, err := s.agreed(ctx, time.Now(), "agree")
		return err
	})
	s.explain(err)
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

// TestExits: a process that was asked to leave must end on its own, in time, and without an error.
func TestExits(t *testing.T) {
	soon, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("it takes long"))
	defer cancel()
	for _, c := range []struct {
		ctx     context.Context
		command string
		asked   error
		problem string
	}{
		{t.Context(), "true", nil, ""},
		{t.Context(), "true", errors.New("no answer"), ""},
		{t.Context(), "false", nil, "exit status 1"},
		{t.Context(), "false", errors.New("no answer"), "exit status 1; the request to leave: no answer"},
		{soon, "cat", nil, "it takes long"},
	} {
		p, err := agentproc.Start(exec.Command(c.command), nil)
		if err != nil {
			t.Fatal(err)
		}
		expectCheck(t, (&node{Process: p, id: "a"}).exits(c.ctx, c.asked), c.problem)
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// TestPick: the tour picks a node with rooms for its events, if there is such a node.
func TestPick(t *testing.T) {
	s := newScene(t, abc, "abcabc", nil)
	picked := make(map[lease.NodeID]int)
	for range 100 {
		picked[s.pick().id]++
	}
	if picked["a"] > 0 || picked["b"] == 0 || picked["c"] == 0 {
		t.Errorf("without rooms: %v", picked)
	}
	s.seen = fleet(abc, "abcabc", map[string]lease.NodeID{"attic": "a", "yard": "c"})
	for range 100 {
		if id := s.pick().id; id != "c" {
			t.Fatalf("%s has no rooms", id)
		}
	}
}

// TestGrace: Ctrl-C shortens a stop that is already in progress.
func TestGrace(t *testing.T) {
	for at, want := range map[time.Duration]time.Duration{
		-1: hurryTime, 5 * time.Second: 5*time.Second + hurryTime, 19 * time.Second: stopTime, time.Minute: stopTime,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			began := time.Now()
			limit, release := grace(ctx)
			defer release()
			<-limit.Done()
			if took := time.Since(began); took != want {
				t.Errorf("Ctrl-C after %v: the stop may take %v, want %v", at, took, want)
			}
		})
	}
}
