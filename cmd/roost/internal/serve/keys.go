package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// hangups receives SIGHUP if there is a file of keys to read again. Without one, a process ends with its terminal. An
// agent that still joins must not end by a signal that is meant for its keys.
func hangups(path string) chan os.Signal {
	received := make(chan os.Signal, 1)
	if path != "" {
		signal.Notify(received, syscall.SIGHUP)
	}
	return received
}

// replaceKeys reads the keys of gossip again at each SIGHUP, until ctx ends. A file that is not usable changes
// nothing.
func replaceKeys(ctx context.Context, hangups <-chan os.Signal, agent *cluster.Agent, path string, log *slog.Logger) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		keys, warning, err := settings.Keys(path)
		if warning != "" {
			log.Warn(warning)
		}
		if err == nil {
			err = agent.SetKeys(keys[0], keys[1:]...)
		}
		if err != nil {
			log.Warn("gossip keys stay as they are: the file is not usable", "file", path, "err", err)
			continue
		}
		var others []string
		for _, k := range keys[1:] {
			others = append(others, cluster.KeyFingerprint(k))
		}
		log.Info("gossip keys read again", "sends_with", cluster.KeyFingerprint(keys[0]), "accepts", others)
	}
}
