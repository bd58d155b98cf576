// Handoff is a key-value store that holds its data in memory. The example adds a node and removes a node.
// When the owner of a partition changes, the data of the partition moves to the new owner.
//
//	go run ./examples/handoff
//
// roost makes sure that each partition runs on one node at a time (see Config.Handoff), and the application
// copies the data: see takeOver in node.go. All nodes of the example run in this process and call each other
// directly. In production, each node is a separate process.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	var f fleet
	defer f.close()
	for _, id := range []string{"a", "b", "c"} {
		if _, err := f.join(ctx, cluster.Config{ID: id}); err != nil {
			return err
		}
	}
	if err := until(ctx, f.settled); err != nil {
		return err
	}
	for i := range 1000 {
		if err := f.nodes[i%3].put(ctx, fmt.Sprint("key-", i), fmt.Sprint(i)); err != nil {
			return err
		}
	}
	f.report(out, "a, b and c share the keys")

	d, err := f.join(ctx, cluster.Config{ID: "d", StartDraining: true, SlowStart: time.Second})
	if err != nil {
		return err
	}
	f.report(out, "d has joined")
	if err := f.fill(ctx, d); err != nil {
		return err
	}
	f.report(out, "d has its share")

	if err := f.remove(ctx, f.nodes[1]); err != nil {
		return err
	}
	f.report(out, "b has left")
	return nil
}

// fleet has all nodes, and adds and removes nodes as an operator would.
type fleet struct {
	nodes []*node
	peers sync.Map
}

// join starts a node and adds it to the fleet.
func (f *fleet) join(ctx context.Context, cfg cluster.Config) (*node, error) {
	for _, n := range f.nodes {
		cfg.Join = append(cfg.Join, n.agent.Addr())
	}
	n, err := start(ctx, &f.peers, cfg)
	if err == nil {
		f.nodes = append(f.nodes, n)
	}
	return n, err
}

// fill gives partitions to a node that has joined without any. The weight of the node grows in ten equal steps, and
// each step moves a few partitions. fill returns when the node has its full share.
func (f *fleet) fill(ctx context.Context, n *node) error {
	if err := n.agent.Undrain(ctx); err != nil {
		return err
	}
	full := func(m placement.Node) bool {
		return string(m.ID) == n.agent.Config().ID && m.Weight == n.agent.Config().Weight
	}
	return until(ctx, func() bool {
		return slices.ContainsFunc(n.agent.Snapshot().Table.Nodes(), full) && f.settled()
	})
}

// remove drains a node, waits until its data has moved, and makes the node leave. The wait is needed because
// Drain returns when all nodes agree that the node owns nothing, and the data moves after that.
func (f *fleet) remove(ctx context.Context, n *node) error {
	if err := n.agent.Drain(ctx); err != nil {
		return err
	}
	if err := until(ctx, func() bool { held, _, _ := n.count(); return held == 0 && f.settled() }); err != nil {
		return err
	}
	f.nodes = slices.DeleteFunc(slices.Clone(f.nodes), func(m *node) bool { return m == n })
	return n.agent.Leave(ctx)
}

// settled reports whether all nodes agree on the owners, serve the partitions that they own, and hold no
// others. settled first checks that the tables agree, because a node's application can be behind its table.
func (f *fleet) settled() bool {
	for _, n := range f.nodes {
		if !n.agent.Converged() {
			return false
		}
	}
	for _, n := range f.nodes {
		if !n.settled() {
			return false
		}
	}
	return true
}

func (f *fleet) report(out io.Writer, what string) {
	var shares []string
	for _, n := range f.nodes {
		_, _, keys := n.count()
		shares = append(shares, fmt.Sprint(n.agent.Config().ID, " ", keys))
	}
	_, _ = fmt.Fprintf(out, "%s: %s\n", what, strings.Join(shares, ", "))
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		_ = n.agent.Close()
	}
}

// until calls condition repeatedly until it returns true, or until ctx ends.
func until(ctx context.Context, condition func() bool) error {
	for !condition() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
