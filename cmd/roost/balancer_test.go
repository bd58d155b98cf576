//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// balancer makes lookups like a caller that uses /readyz, for example a load balancer, or a media server that asks its
// neighbors while its own agent restarts. Each slot has a caller that prefers the node of its slot. The test fails if a
// lookup fails or returns a node that has ended.
type balancer struct {
	t       *testing.T
	answers time.Duration // for how long a node must still answer after it was ready
	slots   []atomic.Pointer[backend]
	wait    sync.WaitGroup

	gone     atomic.Pointer[lease.NodeID] // the node that has ended; nil = none
	made     atomic.Int64                 // lookups that were answered
	again    atomic.Int64                 // lookups that were repeated at another node after a crash
	problems atomic.Int64

	mu    sync.Mutex                     // guards the tables of answers
	first map[placement.Digest]time.Time // when the earliest lookup was sent
	last  map[placement.Digest]time.Time // when the latest answer came
}

// backend is one process in a slot.
type backend struct {
	*proc
	ready  atomic.Pointer[time.Time] // when the node was last asked, if it was ready; nil otherwise
	killed atomic.Bool               // lookups at this node may fail
}

const (
	checkEvery  = 20 * time.Millisecond
	lookUpEvery = 10 * time.Millisecond // by each caller, on average
)

func newBalancer(t *testing.T, slots int, answers time.Duration) *balancer {
	return &balancer{
		t: t, answers: answers, slots: make([]atomic.Pointer[backend], slots),
		first: make(map[placement.Digest]time.Time), last: make(map[placement.Digest]time.Time),
	}
}

// put assigns a process to a slot, and polls /readyz until the process ends.
func (b *balancer) put(ctx context.Context, slot int, p *proc) {
	n := &backend{proc: p}
	b.slots[slot].Store(n)
	b.wait.Go(func() {
		client := clusterhttp.Client{Base: p.Base, HTTP: &http.Client{Transport: new(http.Transport)}}
		again := time.NewTicker(checkEvery)
		defer again.Stop()
		for {
			now := time.Now()
			if client.Ready(ctx) == nil {
				n.ready.Store(&now)
			} else {
				n.ready.Store(nil)
				select {
				case <-p.Done():
					return
				default:
				}
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// kill ends the process of a slot without warning.
func (b *balancer) kill(slot int) {
	n := b.slots[slot].Load()
	n.killed.Store(true)
	n.Signal(syscall.SIGKILL)
}

// call makes lookups for one slot until ctx ends.
func (b *balancer) call(ctx context.Context, slot int) {
	client := &http.Client{Transport: new(http.Transport)} // keeps its connections
	again := time.NewTimer(0)
	defer again.Stop()
	for i := 0; ; i++ {
		select {
		case <-again.C:
			again.Reset(rand.N(2 * lookUpEvery)) // not all callers at once
			b.lookUp(ctx, client, slot, fmt.Sprintf("room-%d-%d", slot, i))
		case <-ctx.Done():
			return
		}
	}
}

// lookUp asks the first usable node, starting at the given slot.
func (b *balancer) lookUp(ctx context.Context, client *http.Client, slot int, key string) {
	for i := range b.slots {
		n := b.slots[(slot+i)%len(b.slots)].Load()
		asked, ready := time.Now(), n.ready.Load()
		if ready == nil || asked.Sub(*ready) > b.answers/2 {
			continue
		}
		gone := b.gone.Load()
		placed, err := (&clusterhttp.Client{Base: n.Base, HTTP: client}).Place(ctx, key)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// If the node was ready too long ago, this test itself stalled, so the failure does not count.
			if time.Since(*ready) < b.answers && !n.killed.Load() {
				b.problem("a lookup at %s, ready %v before: %v", n.ID, asked.Sub(*ready), err)
			}
			b.again.Add(1)
			continue
		}
		if gone != nil && gone == b.gone.Load() && placed.Owner.ID == *gone {
			b.problem("%s says that %s belongs to %s, which has gone", n.ID, key, *gone)
		}
		b.made.Add(1)
		b.note(placed.Digest, asked, time.Now())
		return
	}
}

func (b *balancer) problem(format string, args ...any) {
	if b.problems.Add(1) <= 5 { // more add nothing
		b.t.Errorf(format, args...)
	}
}

// note records which table an answer came from, when the lookup was sent, and when the answer arrived.
func (b *balancer) note(by placement.Digest, asked, answered time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first, ok := b.first[by]; !ok || asked.Before(first) {
		b.first[by] = asked
	}
	if answered.After(b.last[by]) {
		b.last[by] = answered
	}
}

// differed returns for how long, at most, some nodes answered from the given table while other nodes still answered
// from another table. It covers the time since its last call.
func (b *balancer) differed(by placement.Digest) (d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first, ok := b.first[by]; ok {
		for other, last := range b.last {
			if other != by {
				d = max(d, last.Sub(first))
			}
		}
	}
	clear(b.first)
	clear(b.last)
	return d
}
