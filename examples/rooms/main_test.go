package main

import (
	"context"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

// TestDirective: a client follows its room when the room moves. If moves were dropped, the client resolves the room
// again.
func TestDirective(t *testing.T) {
	resolve := func(_ context.Context, room string) (reconnect.Directive, error) {
		return reconnect.Directive{Room: room, To: "resolved"}, nil
	}
	move := func(room string) affinity.Moved { return affinity.Moved{Room: room, To: lease.Incarnation{Node: "b"}} }
	for name, tc := range map[string]struct {
		batch affinity.MovedBatch
		want  lease.NodeID
	}{
		"its room":      {affinity.MovedBatch{Moved: []affinity.Moved{move("other"), move("standup")}}, "b"},
		"another room":  {affinity.MovedBatch{Moved: []affinity.Moved{move("other")}}, "a"},
		"dropped moves": {affinity.MovedBatch{Resync: true}, "resolved"},
	} {
		if d, err := directive(t.Context(), tc.batch, reconnect.Directive{Room: "standup", To: "a"}, resolve); err != nil || d.To != tc.want {
			t.Errorf("%s: %+v, %v; want %s", name, d, err, tc.want)
		}
	}
}
