package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// A node at a loopback address fails to start once its seeds turn out to be on other hosts, also if they are
// found late.
func TestSeedsDoNotReachLoopback(t *testing.T) {
	var calls atomic.Int64
	late := func(context.Context) ([]string, error) {
		if calls.Add(1) == 1 {
			return nil, errors.New("not yet")
		}
		return []string{"192.0.2.1:7946"}, nil
	}
	for name, cfg := range map[string]cluster.Config{
		"known": {Join: []string{"192.0.2.1:7946"}, Bootstrap: true},
		"late":  {Discover: late},
	} {
		cfg.ID, cfg.Bind, cfg.Network, cfg.StartupGrace, cfg.Log = "a", "127.0.0.1:0", cluster.Local, time.Minute, slog.New(slog.DiscardHandler)
		a, err := cluster.Start(t.Context(), cfg)
		if err == nil {
			_ = a.Close()
			t.Errorf("%s: started", name)
			continue
		}
		if !strings.Contains(err.Error(), "192.0.2.1:7946 is on another host") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
