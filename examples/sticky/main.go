// Sticky shows a strategy that remembers the owners of partitions. The strategy is in sticky.go. The test
// runs the test suite that every strategy should pass.
//
//	go run ./examples/sticky
//
// The example starts agents in this process. One of them leaves, and another one joins.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	var agents []*cluster.Agent
	defer func() {
		for _, a := range agents {
			_ = a.Close()
		}
	}()
	var seeds []string
	join := func(id string) error {
		agent, err := cluster.Start(ctx, cluster.Config{
			ID: id, Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local, Partitions: 12, Strategy: sticky{},
			HeartbeatInterval: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		agents, seeds = append(agents, agent), append(seeds, agent.Addr())
		return nil
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := join(id); err != nil {
			return err
		}
	}
	three, err := await(ctx, agents[0], map[lease.NodeID]int{"a": 4, "b": 4, "c": 4})
	if err != nil {
		return err
	}
	fmt.Println("a, b and c start:", shares(three))

	if err := agents[2].Leave(ctx); err != nil {
		return err
	}
	two, err := await(ctx, agents[0], map[lease.NodeID]int{"a": 6, "b": 6})
	if err != nil {
		return err
	}
	fmt.Println("c leaves:", shares(two))

	if err := join("d"); err != nil {
		return err
	}
	again, err := await(ctx, agents[0], map[lease.NodeID]int{"a": 4, "b": 4, "d": 4})
	if err != nil {
		return err
	}
	fmt.Printf("d joins: %s; %d of 12 partitions moved\n", shares(again), len(placement.Diff(two, again).Moves))
	return nil
}

// shares formats how many partitions each node owns.
func shares(t *placement.Table) string {
	counts := t.Balance().Counts
	var list []string
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s owns %d", id, counts[id]))
	}
	return strings.Join(list, ", ")
}

// await waits until a table of the agent has the wanted number of partitions per node, and returns that
// table.
func await(ctx context.Context, a *cluster.Agent, want map[lease.NodeID]int) (*placement.Table, error) {
	var counts map[lease.NodeID]int
	for range a.Watch(ctx) {
		table := a.Snapshot().Table
		if counts = table.Balance().Counts; maps.Equal(counts, want) {
			return table, nil
		}
	}
	return nil, fmt.Errorf("partitions are spread as %v, want %v: %w", counts, want, ctx.Err())
}
