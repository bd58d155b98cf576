package routinggrpc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// picker sends a call over the connection to its key's owner. A picker uses the owner in the current table,
// and the connection in the latest update.
type picker struct {
	cfg    *Config
	conns  map[string]*conn            // by address; never modified
	missed func(addr string) time.Time // see ownerBalancer
}

var errNoAddr = errors.New("routinggrpc: the owner has no address: start its agent with --api-addr")

// someOwners is how many members can serve a call without a key.
const someOwners = 3

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	key, err := p.cfg.Key.of(info.Ctx, info.FullMethodName)
	if err != nil {
		// gRPC does not let a balancer return INVALID_ARGUMENT.
		return balancer.PickResult{}, status.Error(codes.Internal, "routinggrpc: "+err.Error())
	}
	owners := p.cfg.Owners
	if key == "" {
		key, owners = strconv.FormatUint(rand.Uint64(), 36), max(owners, someOwners)
	}
	addr, err := p.cfg.Table.place(key)
	if err != nil {
		return balancer.PickResult{}, err
	}
	sub, fails, err := p.connTo(addr)
	if !fails || owners == 1 {
		return balancer.PickResult{SubConn: sub}, err
	}
	for _, next := range p.cfg.Table.owners(key, owners) {
		if sub, fails, err := p.connTo(next); !fails {
			return balancer.PickResult{SubConn: sub}, err
		}
	}
	return balancer.PickResult{}, err
}

// connTo returns the connection to an address. If the connection is not ready, the error makes the call wait
// (ErrNoSubConnAvailable) or fail. fails reports whether the connection fails, so that the caller should
// prefer another owner.
func (p *picker) connTo(addr string) (_ balancer.SubConn, fails bool, _ error) {
	c := p.conns[addr]
	switch {
	case addr == "":
		return nil, true, errNoAddr
	case c == nil && time.Since(p.missed(addr)) >= p.cfg.RetryTimeout:
		return nil, true, fmt.Errorf("routinggrpc: the owner, %s, is not a member", addr)
	case c == nil:
		return nil, false, balancer.ErrNoSubConnAvailable // the table is newer than the latest update
	}
	now := c.now.Load()
	if now.ready {
		return c.sub, false, nil
	}
	c.connect()
	if now.err != nil && time.Since(now.since) >= p.cfg.RetryTimeout {
		return nil, true, fmt.Errorf("routinggrpc: the owner, %s, is unreachable: %w", addr, now.err)
	}
	return nil, now.err != nil, balancer.ErrNoSubConnAvailable
}
