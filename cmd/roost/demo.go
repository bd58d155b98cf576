package main

import (
	"context"
	"errors"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/roost-cluster/roost/cmd/roost/internal/tour"
	"github.com/spf13/cobra"
)

func (p *program) demoCommand() *cobra.Command {
	type o = tour.Options
	settings := []setting[o]{
		{
			name: "nodes", arg: "N", def: "5", usage: "how many nodes to start with",
			apply: setNumber(2, 20, func(t *o, n int64) { t.Nodes = int(n) }),
		},
		{
			name: "http", arg: "HOST:PORT", def: "127.0.0.1:8400", usage: "where the dashboard and the API are, on this machine; nowhere with --once",
			apply: setDemoHTTP,
		},
		{
			name: "once", arg: "bool", usage: "end after the last step; fail if anything did not hold",
			apply: setBool(func(t *o) *bool { return &t.Once }),
		},
		{
			name: "seed", arg: "N", def: "1", usage: "picks the rooms, and the nodes that things happen to",
			apply: setNumber(0, math.MaxInt64, func(t *o, n int64) { t.Seed = uint64(n) }),
		},
		{
			name: "redis", arg: "URL", secret: true, usage: "pin rooms on this Redis instead of in this process; a password in it is better given in ROOST_REDIS",
			apply: func(t *o, v string) error {
				var agent agentOptions
				err := setRedis(&agent, v)
				t.Redis = agent.redis
				return err
			},
		},
	}
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Show a cluster that grows, crashes and drains, on this machine",
		Long: `Start a cluster of real processes on loopback and walk through its life: place
1,000 rooms by hash, pin those that people come into where there is capacity, add
a node, kill one with kill -9, drain one. After each step it prints what moved and
checks that every node agrees. Without --once there is a dashboard to watch it on,
and the cluster then stays up until Ctrl-C, for you to add, kill, pause and drain
nodes.

It needs no Redis: this process stands in for one, unless --redis names one. Keys
there begin with a name of this run alone; what is left of them at the end expires
within an hour.`,
		Example: `  roost demo
  roost demo --once --nodes 7
  roost demo --redis redis://127.0.0.1:6379`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var options o
			if _, faults := resolve(&options, settings, layers{flags: cmd.Flags(), getenv: p.getenv}, nil); len(faults) > 0 {
				return faulty(faults)
			}
			options.Out = p.stdout
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			context.AfterFunc(ctx, stop) // a second signal ends this process, and with it the agents
			defer stop()
			err := tour.Run(ctx, options)
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				return errInterrupted
			}
			return err
		},
	}
	addFlags(cmd, settings)
	cmd.Flags().SortFlags = false
	return cmd
}

// setDemoHTTP takes loopback only: whoever reaches the demo starts and kills
// processes, without a token.
func setDemoHTTP(t *tour.Options, v string) error {
	t.HTTP = v
	if err := checkHostPort(v); err != nil {
		return err
	}
	if !loopback(v) {
		return errors.New("the demo is for this machine only: want a loopback address")
	}
	return nil
}
