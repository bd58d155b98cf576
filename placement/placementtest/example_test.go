package placementtest_test

import (
	"testing"

	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

// A test of a strategy. newShards would be your own.
func ExampleStrategy() {
	newShards := func() placement.Strategy { return placement.Bounded(110) }

	_ = func(t *testing.T) { // func TestShards(t *testing.T)
		placementtest.Strategy(t, newShards, placementtest.Options{})
	}
}
