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
	// a, b and c start: map[a:4 b:4 c:4]
	// c leaves: map[a:6 b:6]
	// d joins: map[a:4 b:4 d:4] with 4 moves
}
