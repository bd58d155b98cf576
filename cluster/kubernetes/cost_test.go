package kubernetes

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// patches returns how many patches were accepted so far.
func (s *server) patches() (n int) {
	s.change(func() {
		for _, asked := range s.asked {
			if asked == "patch pods/status" {
				n++
			}
		}
	})
	return n
}

// The annotation follows the load, except for small changes. If the load changes often, the pod is patched less often.
// After an outage of the API server, the annotation is updated. The annotation of an earlier container is replaced.
func TestReportDeletionCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t), clustertest.New(t, clustertest.Options{})
		s.pod("a", "10.0.0.1", nil)
		s.change(func() {
			pod := s.pods["a"]
			pod.Annotations = map[string]string{corev1.PodDeletionCost: "99", "other": "kept"}
			s.pods["a"] = pod
		})
		a := c.StartWith("a")
		done := make(chan error, 1)
		go func() {
			done <- ReportDeletionCost(t.Context(), a, Options{Namespace: namespace, Pod: "a", API: s.inMemory()})
		}()
		expect := func(what string, cost, patches int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := s.cost("a"); got != cost {
				t.Errorf("%s: the cost is %d, want %d", what, got, cost)
			}
			if n := s.patches(); n != patches {
				t.Errorf("%s: %d patches, want %d", what, n, patches)
			}
		}
		load := func(units int64) {
			t.Helper()
			if err := a.SetLoad(units); err != nil {
				t.Fatal(err)
			}
		}
		expect("no load is known", 99, 0)
		load(0)
		expect("the first load", 0, 1)
		load(50)
		expect("more load", 50, 2)
		load(54)
		expect("a little more", 50, 2)
		load(55)
		expect("a tenth more", 55, 3)
		load(1)
		expect("almost empty", 1, 4)
		load(0)
		expect("empty", 0, 5)
		load(math.MaxInt64)
		expect("more than an annotation can say", math.MaxInt32, 6)
		if other := s.pods["a"].Annotations["other"]; other != "kept" {
			t.Errorf("another annotation is %q", other)
		}

		for i := range int64(600) {
			load(1000 * (i + 1) * (i % 2))
			time.Sleep(time.Second)
		}
		if n := s.patches() - 6; n > 20 {
			t.Errorf("%d patches in ten minutes", n)
		}
		s.become("down")
		load(100)
		time.Sleep(10 * time.Minute)
		load(300)
		time.Sleep(10 * time.Minute)
		s.become("")
		time.Sleep(time.Minute)
		if got := s.cost("a"); got != 300 {
			t.Errorf("after an outage, the cost is %d", got)
		}

		// If the permission is revoked later, the server keeps running.
		rules := s.rules
		s.change(func() { s.rules = nil })
		load(500)
		time.Sleep(10 * time.Minute)
		s.change(func() { s.rules = rules })
		time.Sleep(time.Minute)
		if got := s.cost("a"); got != 500 {
			t.Errorf("with the permission again, the cost is %d", got)
		}
		c.Leave("a")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// If the permission is missing, the error names the rule. ReportDeletionCost returns when its context ends, even if the
// API server does not answer.
func TestReportDeletionCostEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t), clustertest.New(t, clustertest.Options{})
		s.pod("a", "10.0.0.1", nil)
		a, o := c.StartWith("a"), Options{Namespace: namespace, Pod: "a", API: s.inMemory()}
		if err := a.SetLoad(1); err != nil {
			t.Fatal(err)
		}
		for _, state := range []string{"", "hangs", "down"} {
			s.become(state)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := ReportDeletionCost(ctx, a, o); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q: %v", state, err)
			}
			cancel()
		}
		s.become("")
		s.change(func() { s.rules = nil })
		err := ReportDeletionCost(t.Context(), a, o)
		if want := `{apiGroups: [""], resources: ["pods/status"], verbs: ["patch"]}`; err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	})
}

// The more members there are, the longer each node pauses, so all nodes together send few requests.
func TestCostPause(t *testing.T) {
	for members, want := range map[int]time.Duration{1: 30 * time.Second, 120: 30 * time.Second, 1000: 250 * time.Second} {
		if got := pause(leastCostEvery, members); got != want {
			t.Errorf("%d members: %v, want %v", members, got, want)
		}
	}
}
