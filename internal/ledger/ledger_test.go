package ledger

import (
	"strings"
	"testing"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Every contradiction is a problem, and so is every difference from the node's state.
func TestFaults(t *testing.T) {
	first := events.Batch{Version: 1, Acquired: []events.Ownership{{Partition: 3, Since: 1}}, Joined: []lease.NodeID{"a"}}
	owned, members := []placement.Partition{3}, []lease.NodeID{"a"}
	for name, c := range map[string]struct {
		second  events.Batch
		owned   []placement.Partition
		members []lease.NodeID
		want    string // "" = no problem
	}{
		"no problem":        {events.Batch{}, owned, members, ""},
		"released and gone": {events.Batch{Released: first.Acquired, Left: members}, nil, nil, ""},
		"released, not owned": {
			events.Batch{Version: 2, Released: []events.Ownership{{Partition: 4, Since: 1}}}, owned, members, "version 2: released",
		},
		"released another period": {
			events.Batch{Released: []events.Ownership{{Partition: 3, Since: 2}}}, nil, members, "released",
		},
		"acquired twice":  {first, owned, members, "acquired"},
		"joined twice":    {events.Batch{Joined: members}, owned, members, "a joined"},
		"left, no member": {events.Batch{Left: []lease.NodeID{"b"}}, owned, members, "b left"},
		"owns more":       {events.Batch{}, []placement.Partition{3, 4}, members, "owns 2 partitions, by its batches 1"},
		"other members":   {events.Batch{}, owned, []lease.NodeID{"b"}, "has members [b], by its batches [a]"},
	} {
		var l Ledger
		l.Add(first)
		l.Add(c.second)
		got := strings.Join(l.Problems(c.owned, c.members), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
	}
}
