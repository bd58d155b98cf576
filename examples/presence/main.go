// Presence lists the participants of a room on any node. It shows that the participants of a crashed node disappear from
// the list.
//
//	go run ./examples/presence
//	go run ./examples/presence -redis redis://127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/placement"
)

func main() {
	url := flag.String("redis", "", "URL of a Redis that the nodes share (default: memory of this process)")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	store, closeStore, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer closeStore()

	// Two nodes share only the store. node-a reaches it over a cable, which is pulled later.
	cfg := presence.Config{Interval: time.Second, Grace: 2 * time.Second, Log: slog.New(slog.DiscardHandler)}
	cableA := &cable{Store: store}
	nodeA, errA := presence.Start(cableA, placement.DefaultPartitions, cfg)
	nodeB, errB := presence.Start(store, placement.DefaultPartitions, cfg)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	defer func() { _, _ = nodeA.Close(), nodeB.Close() }()

	// Each connection counts as a participant. ada has two connections.
	err = errors.Join(nodeA.Join(ctx, "standup", "ada/phone"), nodeA.Join(ctx, "standup", "ada/laptop"),
		nodeA.Join(ctx, "standup", "cy/tablet"), nodeB.Join(ctx, "standup", "bob/laptop"))
	if err != nil {
		return err
	}
	show(ctx, "all have joined", nodeB)

	if err := nodeA.Leave(ctx, "standup", "ada/phone"); err != nil {
		return err
	}
	show(ctx, "ada hung up one phone", nodeB)

	crashed := time.Now()
	cableA.pulled.Store(true)
	show(ctx, "node-a has crashed, unnoticed", nodeB)
	if err := nodeB.Join(ctx, "standup", "cy/tablet"); err != nil { // cy's client reconnects; joining twice does not count twice
		return err
	}
	for n := 3; n > 2; time.Sleep(20 * time.Millisecond) {
		if n, err = nodeB.Count(ctx, "standup"); err != nil {
			return err
		}
	}
	show(ctx, fmt.Sprintf("%.1f s later, no ghost of ada", time.Since(crashed).Seconds()), nodeB)
	return nil
}

func open(ctx context.Context, url string) (presence.Store, func(), error) {
	if url == "" {
		return presence.NewMemory(), func() {}, nil
	}
	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: url})
	if err != nil {
		return nil, nil, err
	}
	store, err := redisstore.New(redis, redisstore.Options{Prefix: "roost-example:"})
	if err != nil {
		return nil, nil, err
	}
	return store.Presence(), func() { _ = store.Close() }, nil
}

func show(ctx context.Context, what string, node *presence.Tracker) {
	members, err := node.Members(ctx, "standup")
	fmt.Printf("%-34s", what+":")
	for _, m := range members {
		fmt.Print(" ", m.Name)
	}
	if err != nil {
		fmt.Print(" ", err)
	}
	fmt.Println()
}

// cable is a store that cannot be reached when the cable is pulled, as after a crash of the node.
type cable struct {
	presence.Store
	pulled atomic.Bool
}

func (c *cable) Heartbeat(ctx context.Context, stale time.Duration, participants ...presence.Participant) error {
	if c.pulled.Load() {
		return presence.ErrStore
	}
	return c.Store.Heartbeat(ctx, stale, participants...)
}

func (c *cable) Leave(ctx context.Context, participants ...presence.Participant) error {
	if c.pulled.Load() {
		return presence.ErrStore
	}
	return c.Store.Leave(ctx, participants...)
}
