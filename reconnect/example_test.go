package reconnect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/reconnect"
)

// A Machine on a clock of the caller. All random numbers are 0 here, so the waits are
// the shortest.
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
			r.Failed(now, 0, errors.New("connection refused"))
		} else {
			fmt.Println(now.Sub(start), "resolve")
			r.Resolved(now, reconnect.Directive{Room: "standup", To: "node-c", Epoch: 8})
		}
	}
	fmt.Println(r.Err())
	// Output:
	// 0s connect to node-b
	// 3s connect to node-b
	// 6s connect to node-b
	// 9s resolve
	// 9s connect to node-c
	// reconnect: gave up reconnecting to room "standup" after 4 attempts; resolve the room again: connection refused
}

func ExampleDriver_Run() {
	down := true
	r := reconnect.Driver{
		Connect: func(_ context.Context, d reconnect.Directive) error {
			fmt.Println("connect to", d.Addr)
			if down {
				down = false
				return errors.New("connection refused")
			}
			return nil
		},
		Resolve: func(context.Context, string) (reconnect.Directive, error) {
			return reconnect.Directive{}, errors.New("not needed here")
		},
		// Short waits, for the example.
		Pace: reconnect.Pace{Spread: time.Millisecond, MinWait: time.Millisecond, MaxWait: 2 * time.Millisecond},
		Log:  slog.New(slog.DiscardHandler),
	}
	err := r.Run(context.Background(), reconnect.Directive{Room: "standup", To: "node-b", Addr: "b.example:443", Epoch: 7})
	switch {
	case errors.Is(err, reconnect.ErrGaveUp):
		fmt.Println("failed:", err)
	case err == nil:
		fmt.Println("back in the room")
	}
	// Output:
	// connect to b.example:443
	// connect to b.example:443
	// back in the room
}

// A client's signalling loop passes on each directive that arrives.
func ExampleDriver_Directed() {
	r := reconnect.Driver{
		Connect: func(_ context.Context, d reconnect.Directive) error {
			fmt.Println("connect to", d.To)
			return nil
		},
		Resolve: func(context.Context, string) (reconnect.Directive, error) {
			return reconnect.Directive{}, errors.New("not needed here")
		},
		Pace: reconnect.Pace{Spread: time.Millisecond},
		Log:  slog.New(slog.DiscardHandler),
	}
	for _, d := range []reconnect.Directive{
		{Room: "standup", To: "node-b", Epoch: 7},
		{Room: "standup", To: "node-b", Epoch: 7}, // a duplicate
		{Room: "standup", To: "node-a", Epoch: 5}, // late
		{Room: "standup", To: "node-c", Epoch: 9},
	} {
		if !r.Directed(d) { // a program runs this in a goroutine of its own
			if err := r.Run(context.Background(), d); err != nil {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// connect to node-b
	// connect to node-c
}
