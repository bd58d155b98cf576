// Package serve runs an agent with its HTTP API and its store of pins, and shuts the agent down.
package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
	"github.com/roost-cluster/roost/internal/logqueue"
)

const (
	leaveTime = 15 * time.Second // for the leave message
	closeTime = 10 * time.Second // for the clean-up after it
)

var errOverdue = errors.New("the agent did not end in time")

// Run runs the agent until it stops by itself, or until a signal or the end of stdin stops it. After a second
// signal, Run returns ErrInterrupted.
func Run(ctx context.Context, a settings.Agent, stdin io.Reader, log *slog.Logger, reloading Reloading) error {
	signal.Ignore(syscall.SIGPIPE) // otherwise the agent would die when the reader of its log does
	orderly, atOnce, stop := watchEndings(ctx, stdin, a.StdinCloses)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(orderly, a, log, reloading) }()
	// A service manager waits for this process, so exit even if the shutdown hangs.
	overdue := make(chan error, 1)
	context.AfterFunc(orderly, func() {
		time.AfterFunc(a.ShutdownDelay+leaveTime+closeTime, func() { overdue <- errOverdue })
	})
	select {
	case err := <-ended:
		return err
	case err := <-atOnce:
		return err
	case err := <-overdue:
		return err
	}
}

// run runs the agent until it stops by itself, or leaves because ctx has ended. If settings change while the
// agent is still joining and owns nothing, run starts the agent again with the new settings. A wrong seed can
// therefore be corrected without a restart of the process.
func run(ctx context.Context, a settings.Agent, log *slog.Logger, reloading Reloading) error {
	received := hangups()
	defer signal.Stop(received)
	for {
		next, err := runWith(ctx, a, log, reloading, received)
		if next == nil {
			return err
		}
		a = *next
		reloading.Level.Set(a.LogLevel)
	}
}

// runWith runs the agent with one version of the settings. If the settings change while the agent joins,
// runWith returns the new settings.
func runWith(
	ctx context.Context,
	a settings.Agent,
	log *slog.Logger,
	reloading Reloading,
	received <-chan os.Signal,
) (*settings.Agent, error) {
	running := a
	a.Cluster.Log, a.Rooms.Log = log, log
	web, err := listenHTTP(ctx, a, log)
	if err != nil {
		return nil, err
	}
	defer web.close()
	var pins store.Store
	if a.Store != "" {
		if pins, err = store.Open(ctx, a.Store, a.Cluster.Cluster, cmp.Or(a.Rooms.Budget, affinity.BudgetOf(a.Cluster.Network)), log); err != nil {
			return nil, err
		}
		defer func() { _ = pins.Close() }()
	}
	a.Cluster.HTTPAddr, a.Cluster.HTTPTLS = web.listens(), a.TLS.Cert != ""
	a.Cluster.Log = slog.New(newJoining(log.Handler(), &web.waitsFor))
	agent, next, err := reloading.start(ctx, a.Cluster, running, received, log)
	if err != nil {
		if ctx.Err() != nil {
			log.Info("stopped while joining")
			return nil, nil
		}
		return next, err
	}
	var rooms *affinity.Resolver
	delay := a.ShutdownDelay
	if pins != nil {
		if rooms, err = affinity.Start(agent, pins, a.Rooms); err != nil {
			_ = agent.Close()
			return nil, err
		}
		// After draining, the agent still answers requests about rooms for this long, so that its leave
		// message can spread.
		delay = cmp.Or(delay, 5*agent.Config().GossipInterval)
	}
	reloads := newReloader(reloading, running, agent, pins, web, log)
	web.show(agent, rooms, a.Rooms.PinTTL, reloads)
	go reloads.run(ctx, received)
	logAlways(log, slog.LevelInfo, "agent running", "node", a.Cluster.ID, "gossip", agent.Addr(), "http", web.addr)
	select {
	case <-agent.Done():
		end(rooms, log)
		return nil, agent.Err()
	case <-ctx.Done():
	}
	web.turnAway()
	drain(agent, delay)
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if err := agent.Leave(leaving); err != nil && !errors.Is(err, cluster.ErrClosed) {
		log.Warn("leave incomplete", "err", err)
	}
	return nil, agent.Err()
}

// logAlways logs regardless of --log-level, because scripts and people wait for these lines.
func logAlways(log *slog.Logger, level slog.Level, message string, args ...any) {
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.Add(args...)
	_ = log.Handler().Handle(context.Background(), line)
}

// drain drains the node and waits for delay. During that time callers still get answers, and /readyz tells
// them to use other nodes.
func drain(agent *cluster.Agent, delay time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), delay)
	defer cancel()
	_ = agent.Drain(ctx) // if delay ends first, Leave waits for the rest
	select {
	case <-ctx.Done():
	case <-agent.Done():
	}
}

func end(rooms *affinity.Resolver, log *slog.Logger) {
	if rooms == nil {
		return
	}
	if err := rooms.Close(); err != nil {
		log.Warn("rooms closed without the store", "err", err)
	}
}

// NewLogger returns a logger in the given format that never blocks on w. end waits up to a second for the
// last lines to be written.
func NewLogger(w io.Writer, format string, level slog.Leveler) (_ *slog.Logger, end func()) {
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if format == "json" {
		h = slog.NewJSONHandler(w, o)
	}
	log, _, end := logqueue.Through(slog.New(h))
	return log, end
}
