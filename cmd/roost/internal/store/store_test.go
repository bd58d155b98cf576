package store

import (
	"log/slog"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// TestMemory: a store other than Redis accepts pins, and the log warns about its risk.
func TestMemory(t *testing.T) {
	logged := new(agentproc.Log)
	s, err := Open(t.Context(), Memory, "roost", 0, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	op := pinstore.Op{Partition: 7, Room: "lobby", Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: "a", Number: 1}}, TTL: time.Minute}
	if r := s.Swap(t.Context(), op)[0]; r.Err != nil || !r.Done {
		t.Errorf("%+v", r)
	}
	if logged.String() == "" {
		t.Error("nothing is logged")
	}
}
