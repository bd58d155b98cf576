// Picker is an example for programs that have used a list of peers and a hash ring until now. The adapter to roost is in
// picker.go. The adapter has a scope for each of two roles, keeps connections to the members, and shuts down in order.
//
//	go run ./examples/picker
//
// The example starts four agents in this process, two for each role, and one of them leaves.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// node is a process of the cluster: an HTTP server that responds with its name, and a picker.
type node struct {
	*Picker
	server *http.Server
}

func start(ctx context.Context, id, role string, join ...string) (*node, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, id) }),
	}
	go func() { _ = server.Serve(l) }()
	agent, err := cluster.Start(ctx, cluster.Config{
		ID: id, Bind: "127.0.0.1:0", APIAddr: l.Addr().String(), Join: join, Labels: map[string]string{"role": role},
		Network: cluster.Local, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	picker, err := NewPicker(ctx, agent, "cache", "worker")
	if err != nil {
		return nil, errors.Join(err, agent.Close(), server.Close())
	}
	n := &node{picker, server}
	select {
	case <-agent.Ready():
		return n, nil
	case <-agent.Done(): // the agent's log says why
		err = agent.Err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, n.end(ctx))
}

// end makes the node leave before it shuts down the server, so that no request is sent to a server that is gone.
func (n *node) end(ctx context.Context) error {
	return errors.Join(n.Leave(ctx), n.server.Shutdown(ctx))
}

// ask requests 100 keys from their servers, and counts the answers of each server.
func (n *node) ask(ctx context.Context, role string) (map[string]int, error) {
	counts := make(map[string]int)
	for i := range 100 {
		peer, _, err := n.Pick(role, fmt.Sprint("key-", i))
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, peer.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := peer.HTTP.Do(r)
		if err != nil {
			return nil, err
		}
		name, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		counts[string(name)]++
	}
	return counts, nil
}

func run(ctx context.Context) (err error) {
	var nodes []*node
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.end(ctx))
		}
	}()
	var join []string
	for _, id := range []string{"worker-1", "cache-1", "worker-2", "cache-2"} {
		role, _, _ := strings.Cut(id, "-")
		n, err := start(ctx, id, role, join...)
		if err != nil {
			return err
		}
		nodes, join = append(nodes, n), []string{n.agent.Addr()}
	}
	for _, n := range nodes {
		if err := n.agent.WaitConverged(ctx); err != nil {
			return err
		}
	}
	show := func(what string, from *node) error {
		for _, role := range []string{"cache", "worker"} {
			counts, err := from.ask(ctx, role)
			if err != nil {
				return err
			}
			fmt.Printf("%s: %d of 100 keys of role %s are answered, by %s\n", what, sum(counts), role,
				strings.Join(slices.Sorted(maps.Keys(counts)), " and "))
		}
		return nil
	}
	if err := show("four nodes", nodes[0]); err != nil {
		return err
	}
	leaves := nodes[3]
	nodes = nodes[:3]
	if err := leaves.end(ctx); err != nil {
		return err
	}
	return show("cache-2 has left", nodes[0])
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
