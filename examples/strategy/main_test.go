package main

import (
	"errors"
	"testing"

	"github.com/roost-cluster/roost/cluster"
)

func Example() {
	main()
	// Output:
	// the first 16 partitions, each next to its mirror: b a a b b a a b b a b a b a b a
	// partition 1: a has the best score for it by capacity and weight among nodes of role ssd, to which it is pinned, and mirrors partition 0, which b in zone "west" has
	// a in east, capacity 1000: 186 partitions
	// b in west, capacity 1000: 200 partitions
	// c in east, capacity 2000: 326 partitions
	// d in west, capacity 2000: 312 partitions
	// the cluster rejects an agent with strategy shards-ssd-32 instead of shards-ssd-16
}

// S2.1: name and parameters are in the fingerprint of the cluster.
func TestOtherParametersAreRefused(t *testing.T) {
	a, err := cluster.Start(t.Context(), config("a", shards{role: "ssd", pinned: 16}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, other := range []shards{{role: "ssd", pinned: 17}, {role: "hdd", pinned: 16}} {
		b, err := cluster.Start(t.Context(), config("b", other, []string{a.Addr()}))
		if err == nil {
			b.Close()
		}
		var refused *cluster.SettingsError
		if !errors.As(err, &refused) || refused.Setting != "strategy" || refused.Ours != other.Name() || refused.Theirs != "shards-ssd-16" {
			t.Errorf("%v starts beside %s: %v", other, a.Config().Strategy.Name(), err)
		}
	}
	b, err := cluster.Start(t.Context(), config("b", shards{role: "ssd", pinned: 16}, []string{a.Addr()}))
	if err != nil {
		t.Fatalf("of equal parameters: %v", err)
	}
	b.Close()
}
