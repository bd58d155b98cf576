package routinggrpc

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	_ "google.golang.org/grpc/health" // needed for a healthCheckConfig
	"google.golang.org/grpc/resolver"
)

func init() { //nolint:gochecknoinits // gRPC only finds balancers by their registered names
	balancer.Register(balancers{})
}

// balancers builds the balancer of a client.
type balancers struct{}

// Name implements balancer.Builder.
func (balancers) Name() string { return scheme }

// Build implements balancer.Builder.
func (balancers) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &ownerBalancer{cc: cc}
}

// ownerBalancer keeps a connection to each member. After each change, it publishes a picker, so that gRPC
// picks waiting calls again. gRPC calls ownerBalancer from one goroutine, and timers call it from other
// goroutines.
type ownerBalancer struct {
	cc balancer.ClientConn

	mu     sync.Mutex
	cfg    *Config                     // nil until the first update
	conns  map[string]*conn            // by address; never modified, because pickers use it
	missed func(addr string) time.Time // when a call first found no conn for the owner at addr; the first call sets the time
	closed bool
}

var errForeign = errors.New("routinggrpc: the balancer " + scheme + " works only with DialOptions")

// UpdateClientConnState implements balancer.Balancer.
func (b *ownerBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.ResolverState.Attributes.Value(configKey{}).(*Config)
	if !ok {
		b.ResolverError(errForeign)
		return balancer.ErrBadResolverState
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cfg = cfg
	before := b.conns
	b.conns = make(map[string]*conn, len(s.ResolverState.Endpoints))
	for _, e := range s.ResolverState.Endpoints {
		addr := e.Addresses[0]
		c := before[addr.Addr]
		if c == nil {
			if c = b.open(addr); c == nil {
				continue
			}
		}
		b.conns[addr.Addr] = c
	}
	for addr, c := range before {
		if b.conns[addr] == nil {
			c.close()
		}
	}
	misses := new(sync.Map) // by address
	b.missed = func(addr string) time.Time {
		since, again := misses.LoadOrStore(addr, time.Now())
		if !again {
			time.AfterFunc(cfg.RetryTimeout, b.look)
		}
		return since.(time.Time)
	}
	b.publish()
	return nil
}

// open adds a member. The first call to the member opens its connection.
func (b *ownerBalancer) open(addr resolver.Address) *conn {
	c := &conn{}
	sub, err := b.cc.NewSubConn([]resolver.Address{addr}, balancer.NewSubConnOptions{ //nolint:staticcheck // deprecated only for several addresses
		HealthCheckEnabled: true, // has an effect only if the service config requests health checks
		StateListener:      func(s balancer.SubConnState) { b.changed(c, s) },
	})
	if err != nil {
		return nil // the client is being closed
	}
	c.sub = sub
	c.idle.Store(true)
	c.now.Store(&condition{state: connectivity.Idle})
	return c
}

// changed handles a new state of a connection.
func (b *ownerBalancer) changed(c *conn, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	c.change(s, b.cfg.RetryTimeout, b.look)
	b.publish()
}

// look makes gRPC pick waiting calls again, because RetryTimeout has expired for some of them.
func (b *ownerBalancer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.publish()
	}
}

// publish gives gRPC the next picker. The caller must hold the mutex.
func (b *ownerBalancer) publish() {
	var count [connectivity.Shutdown + 1]int
	for _, c := range b.conns {
		count[c.now.Load().state]++
	}
	state := connectivity.TransientFailure
	for _, s := range []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle} {
		if count[s] > 0 {
			state = s
			break
		}
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &picker{cfg: b.cfg, conns: b.conns, missed: b.missed}})
}

// ResolverError implements balancer.Balancer. If a table exists, calls continue to use it.
func (b *ownerBalancer) ResolverError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cfg == nil {
		b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(err)})
	}
}

// UpdateSubConnState implements balancer.Balancer. gRPC does not call it, because open sets listeners.
func (*ownerBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle implements balancer.Balancer. ExitIdle connects to all members.
func (b *ownerBalancer) ExitIdle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.connect()
	}
}

// Close implements balancer.Balancer.
func (b *ownerBalancer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.conns {
		c.close()
	}
}
