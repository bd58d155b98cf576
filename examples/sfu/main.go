// Sfu is a media server that runs on several nodes. The server uses pion for WebRTC and roost for rooms. A
// participant joins via WebSocket, WHIP or WHEP at the node of the room. That node forwards the media of each
// participant to all others. The code that uses roost is in room.go. A room with more than -room-max
// subscribers uses additional nodes: see cascade.go. Each node serves a page for browsers at /, which
// reconnects when its room moves: see web.
//
//	cd examples/sfu
//	go run . demo                                 # three nodes, bots, faults, and their effect on the calls; with -once, exit afterwards
//	go run . demo -redis redis://127.0.0.1:6379
//
//	go run . node -id a -http 127.0.0.1:8001 -bind 127.0.0.1:7001 -redis redis://127.0.0.1:6379
//	go run . node -id b -http 127.0.0.1:8002 -bind 127.0.0.1:7002 -join 127.0.0.1:7001 -redis redis://127.0.0.1:6379
//	go run . bots -nodes 127.0.0.1:8001,127.0.0.1:8002
//
// The example is a separate module, so that programs that use roost don't need pion.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		slog.Error("sfu ended", "err", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	commands := map[string]func(context.Context, []string, io.Writer) error{"node": runNode, "bots": runBots, "demo": runDemo}
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctx, args[1:], out)
		}
	}
	return fmt.Errorf("usage: sfu node|bots|demo [-help]; got %q", args)
}

// runNode runs a node until ctx ends, and then moves its rooms to other nodes.
func runNode(ctx context.Context, args []string, _ io.Writer) error {
	f := flag.NewFlagSet("node", flag.ContinueOnError)
	var cfg nodeConfig
	f.StringVar(&cfg.ID, "id", "a", "name of the node")
	f.StringVar(&cfg.listen, "http", "127.0.0.1:0", "host:port for HTTP and WebSockets, where clients reach it")
	f.StringVar(&cfg.media, "media", "127.0.0.1:0", "host:port for all media (UDP), where clients reach it")
	f.StringVar(&cfg.redis, "redis", "redis://127.0.0.1:6379", "URL of the Redis that the nodes share")
	f.StringVar(&cfg.Bind, "bind", "127.0.0.1:0", "host:port for gossip")
	f.StringVar(&cfg.Advertise, "advertise", "", "host:port where other nodes reach -bind")
	f.IntVar(&cfg.most, "room-max", 0, "maximum number of subscribers of a room; more go to relays on other nodes; 0 means no limit")
	f.Int64Var(&cfg.Capacity, "capacity", 1000, "number of forwarded streams that this node can carry")
	f.IntVar(&cfg.rebalance, "rebalance", 0, "above this percentage of -capacity, rooms move to other nodes; 0 means never")
	join := f.String("join", "", "-bind addresses of other nodes, separated by commas")
	child := f.Bool("exit-on-stdin-close", false, "exit when standard input is closed")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *join != "" {
		cfg.Join = strings.Split(*join, ",")
	}
	cfg.Network = cluster.LAN
	cfg.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	n, err := startNode(ctx, cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if *child {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1) // the parent process has ended
		}()
	}
	select {
	case <-n.fleet.agent.Ready():
		cfg.Log.Info("agent running", "gossip", n.fleet.agent.Addr(), "http", n.fleet.agent.Config().APIAddr)
		<-ctx.Done()
	case <-ctx.Done():
	}
	const timeout = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return n.close(ctx)
}

// runBots runs bots until ctx ends, and prints the gaps in what they received.
func runBots(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("bots", flag.ContinueOnError)
	nodes := f.String("nodes", "", "host:port of nodes, separated by commas")
	rooms := f.Int("rooms", 8, "number of rooms, with one publisher each")
	subscribers := f.Int("subscribers", 2, "number of subscribers in each room")
	report := f.Bool("report", true, "report lost nodes")
	every := f.Duration("every", 10*time.Second, "how often to print the gaps")
	if err := f.Parse(args); err != nil {
		return err
	}
	doors := strings.Split(*nodes, ",")
	crowd, err := newCrowd(func() []string { return doors }, *report)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer crowd.close()
	defer stop()
	if err := crowd.fill(ctx, *rooms, *subscribers); err != nil {
		return err
	}
	for ctx.Err() == nil {
		began := crowd.begin()
		wait(ctx, *every)
		m := crowd.measured(began)
		_, _ = fmt.Fprintf(out, "gaps (p50 p95 max): %v; gave up: %d\n", &m, len(m.gaveUp))
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
