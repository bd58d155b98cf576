package placementtest_test

import (
	"testing"

	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

// To test your own strategy, replace newShards with its constructor.
func ExampleStrategy() {
	newShards := func() placement.Strategy { return placement.Bounded(110) }

	_ = func(t *testing.T) { // func TestShards(t *testing.T)
		placementtest.Strategy(t, newShards, placementtest.Options{})
	}
}
