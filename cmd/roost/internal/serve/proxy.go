package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/roost-cluster/roost/follow"
	"github.com/roost-cluster/roost/follow/httpproxy"
)

// proxyGrace is for how long requests may end when a proxy is asked to.
const proxyGrace = 15 * time.Second

// RunProxy sends requests that arrive at an address to the owners of their keys, until ctx ends. Then requests in
// progress have 15 s.
func RunProxy(ctx context.Context, addr string, agents follow.Config, cfg httpproxy.Config) error {
	log := cfg.Log
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--listen %s: cannot listen: %w", addr, err)
	}
	defer func() { _ = listener.Close() }()
	following, stop := context.WithCancel(context.WithoutCancel(ctx)) // also for the last requests
	defer stop()
	f, err := follow.Start(following, agents)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	cfg.Place = httpproxy.Follower(f)
	proxy, err := httpproxy.New(cfg)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: proxy, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	log.Info("proxy running", "listen", listener.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("the proxy has ended: %w", err)
	case <-ctx.Done():
	}
	log.Info("ending; requests in progress go on", "for", proxyGrace)
	bounded, cancel := context.WithTimeout(following, proxyGrace)
	defer cancel()
	if err := srv.Shutdown(bounded); errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests broken off", "after", proxyGrace)
		_ = srv.Close()
	}
	return nil
}
