package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agentproc"
)

// farm runs the node processes for the demo and the tests.
type farm struct {
	exe   string
	redis string
	args  []string                                    // arguments of all nodes
	start func(*exec.Cmd) (*agentproc.Process, error) // default: agentproc.Start
	http  http.Client

	mu    sync.Mutex
	nodes map[string]*child
}

type child struct {
	*agentproc.Process
	agentproc.Addrs
	hidden bool // clients do not ask this node
}

func newFarm(exe, redis string) *farm {
	return &farm{
		exe: exe, redis: redis, nodes: make(map[string]*child), http: http.Client{Timeout: 2 * time.Second},
		start: func(cmd *exec.Cmd) (*agentproc.Process, error) {
			return agentproc.Start(cmd, &agentproc.Log{Tail: 200})
		},
	}
}

// add starts a node and returns when the node has joined the fleet.
func (f *farm) add(ctx context.Context, id string, args ...string) error {
	var seeds []string
	for _, n := range f.all() {
		seeds = append(seeds, n.Gossip)
	}
	all := append([]string{"node", "-id", id, "-redis", f.redis, "-join", strings.Join(seeds, ","), "-exit-on-stdin-close"},
		slices.Concat(f.args, args)...)
	cmd := exec.Command(f.exe, all...) //nolint:gosec // the caller names the program
	cmd.Env = agentproc.Environ()
	p, err := f.start(cmd)
	if err != nil {
		return err
	}
	addrs, err := p.Await(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.Log)
	}
	f.mu.Lock()
	f.nodes[id] = &child{Process: p, Addrs: addrs}
	f.mu.Unlock()
	return f.meet(ctx)
}

// meet waits until all nodes see each other and would notice if a node ended. After a join, this takes a second or two.
func (f *farm) meet(ctx context.Context) error {
	const watched = 4 // number of other nodes that each node watches
	return until(ctx, func() error {
		for id := range f.all() {
			s, err := f.stats(ctx, id)
			if err == nil && (s.Members != len(f.all()) || s.Watched < min(watched, s.Members-1)) {
				err = fmt.Errorf("%+v", s)
			}
			if err != nil {
				return fmt.Errorf("%s is not in the fleet of %d: %w", id, len(f.all()), err)
			}
		}
		return nil
	})
}

func (f *farm) all() map[string]*child {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.nodes)
}

func (f *farm) node(id string) *child { return f.all()[id] }

func (f *farm) ids() []string { return slices.Sorted(maps.Keys(f.all())) }

// visible returns the nodes that clients ask.
func (f *farm) visible() map[string]*child {
	all := f.all()
	maps.DeleteFunc(all, func(_ string, n *child) bool { return n.hidden })
	return all
}

// doors returns the addresses of the nodes that clients ask.
func (f *farm) doors() (addrs []string) {
	for _, n := range f.visible() {
		addrs = append(addrs, n.HTTP)
	}
	return addrs
}

// open returns the ids and addresses of the nodes that clients ask.
func (f *farm) open() (all []door) {
	for id, n := range f.visible() {
		all = append(all, door{id, n.HTTP})
	}
	return all
}

// kill kills a node as with kill -9.
func (f *farm) kill(id string) error {
	n := f.node(id)
	f.forget(id)
	return n.Kill()
}

func (f *farm) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.nodes, id)
}

// drain stops a node after it has moved its rooms to other nodes.
func (f *farm) drain(id string) error {
	n := f.node(id)
	defer f.forget(id)
	f.hide(id, true)
	const timeout = 40 * time.Second
	if !n.Stop(timeout) || !n.State().Success() {
		return fmt.Errorf("node %s did not stop cleanly: %s\n%s", id, n.State(), n.Log)
	}
	return nil
}

func (f *farm) close() {
	for _, n := range f.all() {
		_ = n.Kill()
	}
}

func (f *farm) stats(ctx context.Context, id string) (s stats, err error) {
	n := f.node(id)
	if n == nil {
		return s, errors.New("no such node")
	}
	return s, f.get(ctx, "http://"+n.HTTP+"/stats", &s)
}

func (f *farm) get(ctx context.Context, at string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := f.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", at, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// homes asks a node where the rooms are.
func (f *farm) homes(ctx context.Context, rooms []string) (map[string]reconnect.Directive, error) {
	homes := make(map[string]reconnect.Directive)
	for _, room := range rooms {
		err := errors.New("no node")
		for _, n := range f.visible() {
			var d reconnect.Directive
			if err = f.get(ctx, "http://"+n.HTTP+"/where/"+url.PathEscape(room), &d); err != nil {
				continue
			}
			if homes[room] = d; f.node(string(d.To)) == nil {
				err = fmt.Errorf("%s still lives on %s, which has stopped", room, d.To)
			}
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return homes, nil
}

// settled waits until all rooms are on running nodes and the bots of the crowd play from these nodes.
func (f *farm) settled(ctx context.Context, c *crowd, rooms []string) (homes map[string]reconnect.Directive, err error) {
	err = until(ctx, func() (err error) {
		if homes, err = f.homes(ctx, rooms); err == nil {
			err = c.at(homes)
		}
		return err
	})
	return homes, err
}

// busiest returns the id of the node with the most rooms.
func (f *farm) busiest(ctx context.Context) (id string) {
	most := -1
	for _, name := range f.ids() {
		if s, err := f.stats(ctx, name); err == nil && s.Hosted > most {
			id, most = name, s.Hosted
		}
	}
	return id
}
