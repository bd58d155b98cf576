package reconnect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// The caller provides the clock of a Machine. All random numbers are 0 in this example, so the waits are as short as
// possible.
func ExampleMachine() {
	var r reconnect.Machine
	start := time.Unix(0, 0)
	now := start
	r.Directed(now, 0, reconnect.Directive{Room: "standup", To: "node-b", Epoch: 7})
	for r.Err() == nil {
		step, wait := r.Next(now)
		if wait > 0 {
			now = now.Add(wait)
			continue
		}
		if step == reconnect.StepConnect {
			fmt.Println(now.Sub(start), "connect to", r.Target().To)
			r.Failed(now, 0, errors.New("handshake failed"))
		} else {
			fmt.Println(now.Sub(start), "resolve")
			r.Resolved(now, 0, reconnect.Directive{Room: "standup", To: "node-c", Epoch: 8})
		}
	}
	fmt.Println(r.Err())
	// Output:
	// 0s connect to node-b
	// 3s connect to node-b
	// 6s connect to node-b
	// 9s resolve
	// 9s connect to node-c
	// reconnect: gave up reconnecting to room "standup" after 4 attempts; resolve the room again: handshake failed
}

// A client's signalling loop passes each directive to Follow.
func ExampleDriver_Follow() {
	r := reconnect.Driver{
		Connect: func(_ context.Context, d reconnect.Directive) error {
			fmt.Println("connect to", d.To)
			return nil
		},
		Resolve: func(context.Context, string) (reconnect.Directive, error) {
			return reconnect.Directive{}, errors.New("not needed here")
		},
		Pace: reconnect.Pace{Spread: time.Millisecond, MinWait: time.Millisecond}, // short waits for the example
		Log:  slog.New(slog.DiscardHandler),
	}
	for _, d := range []reconnect.Directive{
		{Room: "standup", To: "node-b", Epoch: 7},
		{Room: "standup", To: "node-b", Epoch: 7}, // a duplicate
		{Room: "standup", To: "node-a", Epoch: 5}, // late
		{Room: "standup", To: "node-c", Epoch: 9},
	} {
		if err := r.Follow(context.Background(), d); err != nil { // a real program calls Follow in a goroutine
			fmt.Println(err)
		}
	}
	// Output:
	// connect to node-b
	// connect to node-c
}

// A client that has lost its connection asks for its room's node, and connects to that node.
func ExampleDriver_Lost() {
	was := reconnect.Directive{Room: "standup", To: "node-b", Addr: "b.example:443", Epoch: 7}
	next := reconnect.Directive{Room: "standup", To: "node-c", Addr: "c.example:443", Epoch: 8}
	var moved atomic.Bool // Connect and Resolve may run at the same time
	r := reconnect.Driver{
		Connect: func(_ context.Context, d reconnect.Directive) error {
			fmt.Println("connect to", d.Addr)
			if d.To == "node-b" {
				moved.Store(true)
				return reconnect.ErrRefused // the process of node-b has ended
			}
			return nil
		},
		Resolve: func(context.Context, string) (reconnect.Directive, error) {
			if moved.Load() {
				return next, nil
			}
			return was, nil
		},
		Pace: reconnect.Pace{Spread: time.Millisecond, MinAsk: time.Millisecond, MaxAsk: 2 * time.Millisecond},
		Log:  slog.New(slog.DiscardHandler),
	}
	err := r.Lost(context.Background(), was)
	if errors.Is(err, reconnect.ErrGaveUp) {
		fmt.Println("failed:", err)
	}
	// Output:
	// connect to b.example:443
	// connect to c.example:443
}
