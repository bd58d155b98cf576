package lease

import (
	"slices"

	"github.com/roost-cluster/roost/internal/wire"
)

// ClusterID distinguishes clusters that have the same name and settings. It lists the handles of the
// incarnations that founded the cluster, in ascending order. A cluster usually has a single founder. It has
// more founders if parts of the cluster started separately and met via seeds later. A process that has not
// joined yet has an empty ClusterID. A ClusterID must not be modified.
type ClusterID []Handle

// MaxFounders is the maximum length of a ClusterID. If a cluster has more founders, every node keeps the
// smallest handles, so that all nodes have the same ClusterID.
const MaxFounders = 8

// Same reports whether c and o identify the same cluster, because they share a founder.
func (c ClusterID) Same(o ClusterID) bool {
	return slices.ContainsFunc(c, func(h Handle) bool { return slices.Contains(o, h) })
}

// Bytes returns how many bytes the id takes in a message.
func (c ClusterID) Bytes() int {
	if len(c) == 0 {
		return 0
	}
	return wire.BinSize(len(c) * handleBytes)
}

// Union returns the ClusterID of the cluster that results when clusters c and o merge. It returns c itself if
// o adds no founder.
func (c ClusterID) Union(o ClusterID) ClusterID {
	all := slices.Concat(c, o)
	slices.Sort(all)
	all = slices.Compact(all)
	all = all[:min(len(all), MaxFounders)]
	if slices.Equal(all, c) {
		return c
	}
	return all
}
