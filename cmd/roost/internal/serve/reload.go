package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// Reloading is what SIGHUP needs.
type Reloading struct {
	Load  func() (settings.Agent, error) // reads all sources again
	Level *slog.LevelVar                 // of the log
}

// hangups receives SIGHUP from now on: an agent that still joins must not end by a signal that is meant for its
// settings.
func hangups() chan os.Signal {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	return received
}

// reloader applies settings that have changed.
type reloader struct {
	Reloading

	running settings.Agent
	agent   *cluster.Agent
	web     *web
	log     *slog.Logger
}

// run reads the settings again at each SIGHUP, until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			r.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload takes over what can change. If any source has a fault, nothing changes.
func (r *reloader) reload() {
	next, err := r.Load()
	if err != nil {
		logAlways(r.log, slog.LevelWarn, "settings stay as they are: there is a fault in them", "err", err)
		return
	}
	for _, w := range next.Warnings {
		r.log.Warn("risky configuration", "why", w)
	}
	running, live, restart := r.running.Reload(next)
	if err := r.apply(running, live); err != nil {
		logAlways(r.log, slog.LevelWarn, "settings stay as they are: the agent does not take them", "err", err)
		return
	}
	r.running = running
	if len(running.Cluster.Key) > 0 {
		prints := r.agent.KeyFingerprints()
		logAlways(r.log, slog.LevelInfo, "gossip keys read again", "sends_with", prints[0], "accepts", prints[1:])
	}
	logAlways(r.log, slog.LevelInfo, "settings read again", "changed", live)
	if len(restart) > 0 {
		logAlways(r.log, slog.LevelWarn, "settings have changed that take effect with a restart", "settings", restart)
	}
}

// apply begins with what can fail.
func (r *reloader) apply(a settings.Agent, changed []string) error {
	if slices.Contains(changed, "join") {
		if err := r.agent.SetJoin(a.Cluster.Join...); err != nil {
			return err
		}
	}
	if slices.Contains(changed, "key-file") {
		if err := r.agent.SetKeys(a.Cluster.Key, a.Cluster.OldKeys...); err != nil {
			return err
		}
	}
	r.Level.Set(a.LogLevel)
	r.web.setTokens(a)
	return nil
}
