// Strategy shows how to write your own placement strategy. The rules are in shards.go. The test runs the test
// suite that every strategy should pass.
//
//	go run ./examples/strategy
//
// The example starts four agents with the strategy in this process, and a fifth agent with a different
// parameter, which the others reject.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
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
	var seeds []string
	var last *cluster.Agent
	for _, n := range []struct {
		id, zone, role string
		capacity       int64
	}{
		{"a", "east", "ssd", 1000},
		{"b", "west", "ssd", 1000},
		{"c", "east", "", 2000},
		{"d", "west", "", 2000},
	} {
		cfg := config(n.id, shards{role: "ssd", pinned: 16}, seeds)
		cfg.Zone, cfg.Capacity, cfg.Labels = n.zone, n.capacity, map[string]string{"role": n.role}
		agent, err := cluster.Start(ctx, cfg)
		if err != nil {
			return err
		}
		defer func() { _ = agent.Close() }()
		if err := agent.WaitConverged(ctx); err != nil {
			return err
		}
		seeds, last = []string{agent.Addr()}, agent
	}
	show(last.Snapshot().Table)

	_, err := cluster.Start(ctx, config("e", shards{role: "ssd", pinned: 32}, seeds))
	var rejected *cluster.SettingsError
	if !errors.As(err, &rejected) {
		return fmt.Errorf("an agent with another parameter starts: %w", err)
	}
	fmt.Println("the cluster rejects an agent with", rejected.Setting, rejected.Ours, "instead of", rejected.Theirs)
	return nil
}

func config(id string, s placement.Strategy, seeds []string) cluster.Config {
	return cluster.Config{
		ID: id, Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local, Strategy: s,
		HeartbeatInterval: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
}

func show(table *placement.Table) {
	var pinned []string
	for p := range placement.Partition(16) {
		owner, _ := table.Owner(p)
		pinned = append(pinned, string(owner))
	}
	fmt.Println("the first 16 partitions, each next to its mirror:", strings.Join(pinned, " "))
	fmt.Println("partition 1:", table.Why(1))
	counts := table.Balance().Counts
	for _, n := range table.Nodes() {
		fmt.Printf("%s in %s, capacity %d: %d partitions\n", n.ID, n.Zone, n.Capacity, counts[n.ID])
	}
}
