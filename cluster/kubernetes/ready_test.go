package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// The condition is false at first. It becomes true when all members use the same table as this node, and stays true as
// long as the node is active. It is set once for each change, even if the API server fails in between.
func TestReportReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t), clustertest.New(t, clustertest.Options{})
		s.pod("b", "10.0.0.2", nil)
		slow := clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Debounce = 20 * time.Second })
		a := c.StartWith("a", slow) // its table contains new members only after 20 s
		time.Sleep(time.Minute)
		b := c.StartWith("b")
		s.change(func() { // the condition of an earlier container
			pod := s.pods["b"]
			pod.Status.Conditions = []corev1.PodCondition{{Type: ReadyCondition, Status: "True"}, {Type: "Other", Status: "True"}}
			s.pods["b"] = pod
		})
		done := make(chan error, 1)
		go func() {
			done <- ReportReady(t.Context(), b, Options{Namespace: namespace, Pod: "b", API: s.inMemory()})
		}()
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.patched, want) {
				t.Fatalf("%s: the condition was set to %q, want %q", what, s.patched, want)
			}
		}
		<-b.Ready()
		time.Sleep(10 * time.Second)
		phase := b.Snapshot().Phase
		if phase != cluster.PhaseActive || b.Converged() || a.Snapshot().Diverged() == 0 && b.Snapshot().Diverged() == 0 {
			t.Fatalf("b is %v, and a and b have one table", phase)
		}
		expect("ready, but not in the table of a", "False")
		time.Sleep(15 * time.Second)
		expect("converged", "False", "True")
		if others := s.pods["b"].Status.Conditions; len(others) != 2 {
			t.Errorf("the pod has the conditions %v", others)
		}

		c.StartWith("c") // the tables of a and b differ for 20 s
		time.Sleep(time.Minute)
		expect("another join", "False", "True")

		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("drained", "False", "True", "False")
		s.become("down")
		if err := b.Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		s.become("")
		time.Sleep(10 * time.Second)
		expect("after an outage", "False", "True", "False", "True")

		c.Leave("b")
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect("left", "False", "True", "False", "True", "False")
	})
}

// If the permission is revoked later, a ready server keeps running. The report waits for the permission and warns once.
func TestReportReadyRightWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.pod("a", "10.0.0.1", nil)
		var logged bytes.Buffer // only one goroutine uses it
		log := slog.New(slog.NewTextHandler(&logged, nil))
		a := clustertest.New(t, clustertest.Options{}).StartWith("a", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Log = log }))
		<-a.Ready()
		done := make(chan error, 1)
		go func() {
			done <- ReportReady(t.Context(), a, Options{Namespace: namespace, Pod: "a", API: s.inMemory()})
		}()
		time.Sleep(time.Minute)
		rules := s.rules
		s.change(func() { s.rules = nil })
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
		s.change(func() { s.rules = rules })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"True", "False"}; !slices.Equal(s.patched, want) {
			t.Errorf("the condition was set to %q, want %q", s.patched, want)
		}
		for _, line := range []string{`level=INFO msg="waiting for Kubernetes"`, `level=WARN msg="still waiting for Kubernetes"`} {
			if n := strings.Count(logged.String(), line); n != 1 {
				t.Errorf("%s is logged %d times:\n%s", line, n, &logged)
			}
		}
		s.change(func() { s.rules = nil })
		if err := a.Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = a.Close()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "needs a Role") {
			t.Errorf("the end of the agent without the right: %v", err)
		}
	})
}

// If the pod lacks the readiness gate, ReportReady fails, and the error says what to add. ReportReady returns when its
// context ends, even if the API server hangs.
func TestReportReadyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t), clustertest.New(t, clustertest.Options{})
		s.pod("a", "10.0.0.1", nil)
		a, o := c.StartWith("a"), Options{Namespace: namespace, Pod: "a", API: s.inMemory()}
		for _, state := range []string{"", "hangs", "down"} {
			s.become(state)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := ReportReady(ctx, a, o); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q: %v", state, err)
			}
			cancel()
		}
		s.become("")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.change(func() {
			pod := s.pods["a"]
			pod.Spec.ReadinessGates = nil
			s.pods["a"] = pod
		})
		err := ReportReady(ctx, a, o)
		if err == nil || !strings.Contains(err.Error(), "add readinessGates: [{conditionType: "+ReadyCondition+"}]") {
			t.Error(err)
		}
		s.change(func() { clear(s.pods) })
		if err := ReportReady(ctx, a, o); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Error("a pod that is not there is reported ready")
		}
	})
}
