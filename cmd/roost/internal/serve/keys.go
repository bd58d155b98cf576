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

// replaceKeys reads the keys of gossip again at each SIGHUP, until ctx ends. A file that is not usable changes
// nothing.
func replaceKeys(ctx context.Context, agent *cluster.Agent, path string, log *slog.Logger) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		if path == "" {
			log.Warn("SIGHUP reads the keys of gossip again, and this agent has no --key-file")
			continue
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
			others = append(others, settings.Fingerprint(k))
		}
		log.Info("gossip keys read again", "sends_with", settings.Fingerprint(keys[0]), "accepts", others)
	}
}
