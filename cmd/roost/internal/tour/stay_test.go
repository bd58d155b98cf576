package tour

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// TestSlowOrder: an order that takes long is not reported as an error, because the page will show its effect.
func TestSlowOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{id: "a", client: &clusterhttp.Client{HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}}}
		for _, action := range []string{"drain", "undrain"} {
			if err := new(tour).act(t.Context(), n, action); err != nil {
				t.Errorf("%s: %v", action, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := new(tour).act(ended, n, "drain"); err == nil {
			t.Error("no error at the end of the demo")
		}
	})
}

// TestNoMoreNodes: if no node can be added, the error gives the reason.
func TestNoMoreNodes(t *testing.T) {
	alone := &tour{nodes: []*node{{id: "a", state: lease.Active, paused: true}}}
	crowd := new(tour)
	for range mostNodes {
		crowd.nodes = append(crowd.nodes, &node{Process: new(agentproc.Process), state: lease.Active, client: new(clusterhttp.Client)})
	}
	for want, tour := range map[string]*tour{"a new node cannot join": alone, "at most 20 nodes": crowd} {
		if p := tour.obey(t.Context(), "add", ""); p == nil || p.Status != http.StatusConflict || !strings.Contains(p.Message, want) {
			t.Errorf("%+v, want %q", p, want)
		}
	}
}

// TestOrderThatFails: an order that could not be carried out changes nothing.
func TestOrderThatFails(t *testing.T) {
	p, err := agentproc.Start(exec.Command("go", "version"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	n := &node{Process: p, id: "a", state: lease.Active}
	if err := new(tour).act(t.Context(), n, "pause"); err == nil || n.paused {
		t.Errorf("pause: %v; paused: %v", err, n.paused)
	}
	n.paused = true
	if err := new(tour).act(t.Context(), n, "resume"); err == nil || !n.paused {
		t.Errorf("resume: %v; paused: %v", err, n.paused)
	}
}
