package cluster

import (
	"fmt"
	"strings"

	"github.com/roost-cluster/roost/lease"
)

// bar is why members own nothing, and what to do about it.
type bar struct{ why, advice string }

// bars are all reasons, in the order in which they are stated. The last one ends by itself at once.
var bars = [...]bar{ //nolint:gochecknoglobals // a table
	{"cordoned", "end a cordon"},
	{"flapping because it comes and goes", "wait until a node is no longer flapping"},
	{"draining", "undrain a member or make its health check pass"},
	{"of weight 0", "give a member a weight"},
	{"settling", "wait a few seconds"},
	{"about to own partitions", "try again in a second"},
}

// barOf returns the index in bars of the reason for which m owns nothing.
func barOf(m *Member) int {
	switch {
	case m.cordoned:
		return 0
	case !m.FlappingUntil.IsZero():
		return 1
	case m.State == lease.Draining:
		return 2
	case m.State == lease.Settling:
		return 4
	case m.Weight == 0:
		return 3
	}
	return 5
}

// barred says why none of the members owns anything, and what to do: "2 draining, 1 of weight 0; undrain …".
func barred(members []*Member) string {
	var counts [len(bars)]int
	for _, m := range members {
		counts[barOf(m)]++
	}
	var whys, advice []string
	for i, n := range counts {
		if n > 0 {
			whys = append(whys, fmt.Sprintf("%d %s", n, bars[i].why))
			advice = append(advice, bars[i].advice)
		}
	}
	return fmt.Sprintf("%s; %s, or start another node", strings.Join(whys, ", "), strings.Join(advice, ", "))
}
