package lease

import (
	"slices"

	"github.com/roost-cluster/roost/internal/wire"
)

// ClusterID tells apart clusters that have the same name and settings. It lists the
// incarnations that founded the cluster, ascending: usually one, and more if parts of the
// cluster started apart and met through seeds later. A process that has not joined yet
// has no founders. A ClusterID must not be modified.
type ClusterID []Handle

// MaxFounders bounds a ClusterID. With more, the smallest handles stay, so that all nodes
// keep the same ones.
const MaxFounders = 8

// Same reports whether two processes are of one cluster: whether their ids share a founder.
func (c ClusterID) Same(o ClusterID) bool {
	return slices.ContainsFunc(c, func(h Handle) bool { return slices.Contains(o, h) })
}

// Bytes is how much room the id takes in a message.
func (c ClusterID) Bytes() int {
	if len(c) == 0 {
		return 0
	}
	return wire.BinSize(len(c) * handleBytes)
}

// Union returns the id of a cluster of which both are parts. It returns c itself if o adds nothing.
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
