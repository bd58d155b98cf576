package lease

import (
	"slices"

	"github.com/roost-cluster/roost/internal/wire"
)

// ClusterID distinguishes clusters that have the same name and settings. It lists the incarnations that
// founded the cluster, in ascending order. Usually there is one, and more if parts of the cluster started
// separately and met via seeds later. A process that has not joined yet has no founders. A ClusterID must not
// be modified.
type ClusterID []Handle

// MaxFounders is the maximum length of a ClusterID. If there are more founders, the smallest handles are
// kept, so that all nodes keep the same ones.
const MaxFounders = 8

// Same reports whether two processes belong to the same cluster, because their ids share a founder.
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
