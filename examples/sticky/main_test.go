package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestConforms(t *testing.T) {
	placementtest.Strategy(t, func() placement.Strategy { return sticky{} }, placementtest.Options{Minimal: true})
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a, b and c start: a owns 4, b owns 4, c owns 4
	// c leaves: a owns 6, b owns 6
	// d joins: a owns 4, b owns 4, d owns 4; 4 of 12 partitions moved
}
