package main

import (
	"context"
	"errors"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
	"github.com/roost-cluster/roost/cmd/roost/internal/tour"
	"github.com/spf13/cobra"
)

func (p *program) demoCommand() *cobra.Command {
	o := tour.Options{Out: p.stdout}
	return p.withSettings(&cobra.Command{
		Use:   "demo [flags]",
		Short: "Watch a cluster on this machine grow, crash and drain",
		Long: `Start a cluster of real processes on this machine and take it through its life: place 1,000
rooms by hash, pin rooms where there is capacity, add a node, kill one, drain one. After each
step, the demo prints what moved and checks that all nodes agree. Without --once, it also serves
a dashboard, and the cluster runs until Ctrl-C so that you can try things. You don't need Redis:
the demo brings a stand-in, unless --redis names a real one.`,
		Example: `  roost demo
  roost demo --once --nodes 7
  roost demo --redis redis://127.0.0.1:6379`,
		Args: takes(),
	}, []settings.Setting{
		{Name: "nodes", Arg: "N", Default: "5", Set: settings.Number(&o.Nodes, 2, 20), Usage: "number of nodes at the start"},
		{
			Name: "http", Arg: "HOST:PORT", Default: "127.0.0.1:8400", Set: demoHTTP(&o.HTTP),
			Usage: "serve the dashboard and the API on this loopback address; unused with --once",
		},
		{Name: "once", Arg: "bool", Set: settings.Bool(&o.Once), Usage: "exit after the last step, and fail if a check failed"},
		{
			Name: "seed", Arg: "N", Default: "1", Set: settings.Number(&o.Seed, 0, math.MaxInt64),
			Usage: "selects the rooms, and the nodes that crash and drain",
		},
		{
			Name: "redis", Arg: "URL", Secret: true, Set: sharedStore(&o.Redis),
			Usage: "pin rooms in this Redis instead of in this process; to hide a password, set ROOST_REDIS instead",
		},
	}, func(ctx context.Context) error {
		ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
			ends = append(ends, syscall.SIGHUP)
			hangups := make(chan os.Signal, 1) // a terminal that closes sends two: one from the shell and one from the kernel
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)
		}
		ctx, stop := signal.NotifyContext(ctx, ends...)
		context.AfterFunc(ctx, stop) // a second signal ends this process and the agents
		defer stop()
		err := tour.Run(ctx, o)
		// Ctrl-C can also end an agent that has just been forked, so the error is not reported.
		if err != nil && ctx.Err() != nil {
			return exitError(exitInterrupted)
		}
		return err
	})
}

// sharedStore accepts the URL of a store that all processes of the demo can use.
func sharedStore(to *string) func(string) error {
	return func(v string) error {
		if v == store.Memory {
			return errors.New("the agents of the demo are separate processes and cannot share a store in memory")
		}
		return settings.StoreURL(to)(v)
	}
}

// demoHTTP accepts only loopback addresses, because the HTTP API of the demo lets callers start and kill
// processes without a token.
func demoHTTP(to *string) func(string) error {
	return func(v string) error {
		*to = v
		if err := settings.HostPort(v); err != nil {
			return err
		}
		if !settings.Loopback(v) {
			return errors.New("the demo serves only this machine: want a loopback address")
		}
		return nil
	}
}
