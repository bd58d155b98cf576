package affinity

import (
	"context"
	"strconv"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// settingsOf returns the settings that must be equal on all nodes. The store adds its own settings.
func settingsOf(node cluster.Config, cfg Config) pinstore.Settings {
	s := pinstore.Settings{Cluster: node.Cluster, Values: []pinstore.Setting{{Name: "partitions", Value: strconv.Itoa(node.Partitions)}}}
	if !cfg.AnyCost {
		s.Values = append(s.Values, pinstore.Setting{Name: settingCost, Value: costsOf(cfg)})
	}
	return s
}

// agree compares this node's settings with the settings of the other nodes. self is the incarnation for which
// the store records them.
func (r *Resolver) agree(self lease.Incarnation) error {
	ctx, cancel := r.store.Bounded(context.Background())
	defer cancel()
	return r.store.agreement.Check(ctx, self, r.agent.Snapshot().Stats.Fences)
}
