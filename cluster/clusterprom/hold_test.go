package clusterprom

import (
	"testing"

	"github.com/roost-cluster/roost/cluster"
)

func TestHolds(t *testing.T) {
	v := newView()
	v.Holds = []cluster.Hold{{Cause: cluster.CauseFlapping}, {Cause: cluster.CauseCordoned}}
	held := scrape(t, fixed(v, holdFamily()))
	held.want(t, samples{
		`roost_node_hold{cause="duplicate"}`: 0, `roost_node_hold{cause="clock_ahead"}`: 0, `roost_node_hold{cause="isolated"}`: 0,
		`roost_node_hold{cause="unhealthy"}`: 0, `roost_node_hold{cause="flapping"}`: 1, `roost_node_hold{cause="cordoned"}`: 1,
		`roost_node_hold{cause="draining"}`: 0,
	})
}
