package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/lease"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// No server listens there. Open succeeds nevertheless.
	opt := redisstore.Options{URL: "redis://roost:secret@127.0.0.1:1/0"}
	store, err := redisstore.Open(ctx, opt)
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
	// redis://roost:xxxxx@127.0.0.1:1/0 prefix roost:
}
