package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Picker finds the peer that serves a key in a role, and keeps connections to all peers. A lookup reads the
// table of the role's scope and a map, and takes no locks.
type Picker struct {
	agent  *cluster.Agent
	roles  map[string]*cluster.Scope
	peers  atomic.Pointer[map[lease.NodeID]*Peer] // one for each live member; never modified, only replaced
	cancel context.CancelFunc
	ended  chan struct{}
}

// Peer is a member together with the connections to it.
type Peer struct {
	ID   lease.NodeID
	URL  string // without a path
	HTTP *http.Client
}

// NewPicker creates a scope for each role. The label "role" of a member names its role.
func NewPicker(ctx context.Context, agent *cluster.Agent, roles ...string) (*Picker, error) {
	p := &Picker{agent: agent, roles: make(map[string]*cluster.Scope), ended: make(chan struct{})}
	for _, role := range roles {
		scope, err := agent.Scope(role, func(m *cluster.Member) bool { return m.Labels["role"] == role })
		if err != nil {
			return nil, fmt.Errorf("role %s: %w", role, err)
		}
		p.roles[role] = scope
	}
	p.peers.Store(&map[lease.NodeID]*Peer{})
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go p.connect(ctx)
	return p, nil
}

// connect updates the peers whenever the members change, until the agent stops.
func (p *Picker) connect(ctx context.Context) {
	defer close(p.ended)
	for range p.agent.Watch(ctx) { // the first batch comes when the agent is ready
		old, next := *p.peers.Load(), make(map[lease.NodeID]*Peer)
		for _, m := range p.agent.Members() {
			if peer := old[m.ID]; peer != nil && peer.URL == "http://"+m.APIAddr {
				next[m.ID] = peer // with its open connections
			} else {
				next[m.ID] = newPeer(m)
			}
		}
		p.peers.Store(&next)
		for id, peer := range old {
			if next[id] != peer {
				peer.HTTP.CloseIdleConnections() // calls in progress finish normally
			}
		}
	}
}

func newPeer(m *cluster.Member) *Peer {
	dialer := &net.Dialer{Timeout: time.Second}
	return &Peer{
		m.ID, "http://" + m.APIAddr,
		&http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}},
	}
}

// Pick returns the peer that serves a key. self reports whether that peer is this node.
func (p *Picker) Pick(role, key string) (peer *Peer, self bool, err error) {
	scope := p.roles[role]
	if scope == nil {
		return nil, false, fmt.Errorf("there is no role %q", role)
	}
	owner, err := scope.Place(key)
	if err != nil {
		return nil, false, fmt.Errorf("key %q: %w", key, err)
	}
	if peer = (*p.peers.Load())[owner.ID]; peer == nil { // the table can be slightly newer than the map
		peer = &Peer{owner.ID, "http://" + owner.APIAddr, http.DefaultClient}
	}
	return peer, scope.IsOwner(key), nil
}

// Leave shuts the agent down. Before the agent stops, other nodes take over its keys. Calls in progress still
// find this node until then.
func (p *Picker) Leave(ctx context.Context) error {
	err := p.agent.Leave(ctx)
	p.cancel()
	<-p.ended
	for _, peer := range *p.peers.Load() {
		peer.HTTP.CloseIdleConnections()
	}
	return err
}
