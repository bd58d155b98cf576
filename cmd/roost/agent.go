package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/spf13/cobra"
)

const (
	leaveTime = 15 * time.Second // for the farewell
	closeTime = 10 * time.Second // for what is to be cleared up after it
)

const agentLong = `Run one node until it is told to end.

As soon as it has joined it logs "agent running", with the addresses at which it
gossips and serves HTTP; so port 0 can be used for both.

SIGTERM or SIGINT make the node give up what it owns, at which /readyz fails,
then say farewell and exit 0, within --shutdown-delay and 15 s; a second one stops
it at once (exit 130). It also exits 0 after roost leave, and 1 if it cannot start
or if its id is taken by another process.

A setting is taken from its flag, else from its environment variable, else from
the --config file, else it has the default that is shown here. In the file:

  id: node-a
  join: [10.0.0.1:7946, 10.0.0.2:7946]
  ttl: 6s
  label: {rack: r1}`

func (p *program) agentCommand() *cobra.Command {
	hostName, _ := os.Hostname() // without one, --id has to be set
	cmd := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Run one node of a cluster",
		Long:  agentLong,
		Example: `  roost agent --id a
  roost agent --id b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --join 127.0.0.1:7946
  ROOST_JOIN=10.0.0.1:7946 roost agent --bind 0.0.0.0:7946 --key-file roost.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := loadAgentOptions(layers{flags: cmd.Flags(), getenv: p.getenv}, hostName)
			if err != nil {
				return err
			}
			log := newLogger(p.stderr, o.logFormat, o.logLevel)
			for _, w := range o.warnings {
				log.Warn("risky configuration", "why", w)
			}
			err = p.runAgent(cmd.Context(), o, log)
			if err == nil || errors.Is(err, errInterrupted) {
				return err
			}
			// Through the log, so that its format is the same to the end.
			log.Error("agent failed", "node", o.cluster.ID, "err", err)
			return errReported
		},
	}
	addFlags(cmd, agentSettings())
	_ = cmd.RegisterFlagCompletionFunc("id", cobra.NoFileCompletions) // a new one
	cmd.Flags().SortFlags = false
	return cmd
}

var errOverdue = errors.New("the agent was asked to end and did not")

// runAgent runs the node until it ends or somebody wants it to.
func (p *program) runAgent(ctx context.Context, o agentOptions, log *slog.Logger) error {
	orderly, atOnce, stop := watchEndings(ctx, p.stdin, o.stdinCloses)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.serve(orderly, o, log) }()
	// Whoever stops services waits for this process, whatever goes wrong in it.
	overdue := make(chan error, 1)
	context.AfterFunc(orderly, func() {
		time.AfterFunc(o.shutdownDelay+leaveTime+closeTime, func() { overdue <- errOverdue })
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

// serve runs the node until it stops by itself, or leaves once ctx ends.
func (p *program) serve(ctx context.Context, o agentOptions, log *slog.Logger) error {
	o.cluster.Log = log
	web, err := listenHTTP(ctx, o, log)
	if err != nil {
		return err
	}
	defer web.close()
	store, err := openRedis(ctx, o, log)
	if err != nil {
		return err
	}
	defer store.close()
	agent, err := cluster.Start(ctx, o.cluster)
	if err != nil {
		if ctx.Err() != nil {
			log.Info("stopped while joining")
			return nil
		}
		return err
	}
	rooms, err := store.start(agent, o)
	if err != nil {
		_ = agent.Close()
		return err
	}
	web.show(agent, rooms.Resolver, o.rooms.PinTTL)
	// Scripts wait for this line, so it does not depend on --log-level.
	newLogger(p.stderr, o.logFormat, slog.LevelInfo).Info("agent running",
		"node", o.cluster.ID, "gossip", agent.Addr(), "http", web.addr)
	select {
	case <-agent.Done():
		rooms.end(log)
		return agent.Err()
	case <-ctx.Done():
	}
	web.turnAway()
	yield(agent, cmp.Or(o.shutdownDelay, rooms.delay(agent)))
	rooms.end(log) // before the farewell: others take the rooms once this node has left
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if err := agent.Leave(leaving); err != nil && !errors.Is(err, cluster.ErrClosed) {
		log.Warn("left in a hurry", "err", err)
	}
	return agent.Err()
}

// yield has the node own nothing, and goes on for a while: whoever asks it meanwhile
// is answered, and learns from /readyz to ask others.
func yield(agent *cluster.Agent, delay time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), delay)
	defer cancel()
	_ = agent.Drain(ctx) // it goes on if ctx ends first; Leave waits for it
	select {
	case <-ctx.Done():
	case <-agent.Done():
	}
}

// delay is the --shutdown-delay if none is set: five gossip intervals, where there are
// rooms. Calls about keys are answered for so long after it, while the farewell spreads.
func (r rooms) delay(agent *cluster.Agent) time.Duration {
	if r.Resolver == nil {
		return 0
	}
	return 5 * agent.Config().GossipInterval
}

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
