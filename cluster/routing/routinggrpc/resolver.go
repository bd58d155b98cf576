package routinggrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// builder builds the resolver of a client.
type builder struct{ cfg *Config }

// Scheme implements resolver.Builder.
func (builder) Scheme() string { return scheme }

// OverrideAuthority implements resolver.AuthorityOverrider. The method is needed because a target without a
// name must still have an authority.
func (builder) OverrideAuthority(t resolver.Target) string {
	if name := t.Endpoint(); name != "" {
		return name
	}
	return scheme
}

// Build implements resolver.Builder.
func (b builder) Build(t resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	parsed := cc.ParseServiceConfig(b.cfg.ServiceConfig)
	if parsed.Err != nil {
		return nil, fmt.Errorf("routinggrpc: ServiceConfig: %w", parsed.Err)
	}
	r := &memberResolver{cfg: b.cfg, cc: cc, named: t.Endpoint() != ""}
	r.state = resolver.State{ServiceConfig: parsed, Attributes: attributes.New(configKey{}, b.cfg)}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.wait.Go(func() { r.run(ctx) })
	return r, nil
}

// configKey is the key of the attribute that passes the Config to the balancer.
type configKey struct{}

// memberResolver reports the addresses of the members at the start and after each change of the table.
type memberResolver struct {
	cfg   *Config
	cc    resolver.ClientConn
	named bool // certificates are verified against the name in the target
	state resolver.State
	stop  context.CancelFunc
	wait  sync.WaitGroup
}

// leastResolving is the minimum time that calls wait for the first table. Even if the client already has a
// table, the table needs a moment to arrive here.
const leastResolving = time.Second

var (
	errNoTable = errors.New("routinggrpc: no table yet: check in the status of the routing client whether it reaches an agent")

	// errEnded is a status error, so that it also ends calls with WaitForReady.
	errEnded = status.Error(codes.Unavailable, "routinggrpc: the routing client or agent was closed before it had a table")
)

func (r *memberResolver) run(ctx context.Context) {
	late := time.NewTimer(max(leastResolving, r.cfg.RetryTimeout))
	defer late.Stop()
	changes := r.cfg.Table.subscribe(ctx)
	for {
		select {
		case _, ok := <-changes:
			if !ok {
				if r.state.Endpoints == nil {
					r.cc.ReportError(errEnded)
				}
				return // gRPC keeps the last table
			}
			late.Stop()
			r.state.Endpoints = r.endpoints()
			_ = r.cc.UpdateState(r.state) // after an error, another resolution would not help
		case <-late.C:
			r.cc.ReportError(errNoTable)
		case <-ctx.Done():
			return
		}
	}
}

// endpoints returns one endpoint for each different address of the members. Shortly after a restart, two
// members may have the same address.
func (r *memberResolver) endpoints() []resolver.Endpoint {
	addrs := r.cfg.Table.addrs()
	slices.Sort(addrs)
	endpoints := make([]resolver.Endpoint, 0, len(addrs))
	for _, addr := range slices.Compact(addrs) {
		if addr == "" {
			continue
		}
		a := resolver.Address{Addr: addr}
		if host, _, err := net.SplitHostPort(addr); err == nil && !r.named {
			a.ServerName = host
		}
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	return endpoints
}

// ResolveNow implements resolver.Resolver. ResolveNow does nothing, because changes arrive without a request.
func (*memberResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (r *memberResolver) Close() {
	r.stop()
	r.wait.Wait()
}
