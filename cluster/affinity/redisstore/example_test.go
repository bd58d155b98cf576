package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/lease"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// No server listens at this address. Open succeeds nevertheless.
	opt := rueidisconn.Options{URL: "redis://roost:secret@127.0.0.1:1/0"}
	redis, err := rueidisconn.Open(ctx, opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := redisstore.New(redis, redisstore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	result := store.Swap(ctx, pinstore.Op{
		Partition: 17,
		Room:      "standup",
		Set:       pinstore.Pin{Incarnation: lease.Incarnation{Node: "node-1", Number: 1}, Size: 5},
		TTL:       time.Hour,
	})[0]
	fmt.Println("pinned:", result.Done)
	fmt.Println("Redis does not answer:", errors.Is(result.Err, pinstore.ErrStore))
	fmt.Println(opt)
	// Output:
	// pinned: false
	// Redis does not answer: true
	// redis://roost:xxxxx@127.0.0.1:1/0
}

// Redis pins rooms to nodes that have headroom.
func Example_rooms() {
	ctx := context.Background()
	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", APIAddr: "media-1.example.org:3478", Capacity: 5000})
	if err != nil {
		log.Fatal(err)
	}
	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: "redis://10.0.0.9:6379"})
	if err != nil {
		log.Fatal(err)
	}
	store, err := redisstore.New(redis, redisstore.Options{Prefix: "calls:"})
	if err != nil {
		log.Fatal(err)
	}
	rooms, err := affinity.Start(agent, store, affinity.Config{ReportLoad: true})
	if err != nil {
		log.Fatal(err)
	}
	at, err := rooms.Resolve(ctx, "room-17", affinity.Demand{Size: 4}) // on any node, for 4 participants: send the client to at.Node
	if err != nil || at.Node != "node-1" {
		return
	}
	hosting, err := rooms.Host(ctx, "room-17", affinity.Demand{Size: 4}) // on at.Node, before it accepts the client
	if err != nil {
		log.Fatal(err)
	}
	<-hosting.Lost() // this node no longer hosts the room: hosting.Err() says why, and where the room moved
}
