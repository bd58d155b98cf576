package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
)

// joiner is the goroutine that joins seeds: at the start until one answers, and then
// each seed without a membership again and again, because a long split does not heal by
// itself. The joiner waits for the network; the loop must not.
type joiner struct {
	agent *Agent
	first chan error    // the result of the join at the start
	again chan struct{} // the kernel wants to rejoin
}

const (
	retryFirst  = 250 * time.Millisecond // between attempts until a seed answers
	resolveTime = 5 * time.Second
	triesAtOnce = 8 // a seed that answers must not wait for silent ones
)

func (j *joiner) run(ctx context.Context) {
	j.first <- j.start(ctx)
	for ctx.Err() == nil {
		wait := j.agent.cfg.RejoinInterval
		wait += time.Duration((rand.Float64()*0.4 - 0.2) * float64(wait))
		select {
		case <-time.After(wait):
			j.heal(ctx)
		case <-j.again:
			_ = j.join(ctx, true, func(error) bool { return false })
		case <-ctx.Done():
		}
	}
}

// start joins at the start of the agent. It fails if no seed accepts this node and at
// least one refuses it.
func (j *joiner) start(ctx context.Context) error {
	if j.agent.cfg.Bootstrap {
		return j.joined(ctx, 0, false)
	}
	tries := 0
	return j.join(ctx, false, func(err error) bool {
		tries++
		var settings *SettingsError
		// A seed that is just being stopped hangs up, too.
		return errors.As(err, &settings) || errors.Is(err, ErrKey) || (errors.Is(err, ErrCluster) && tries >= 3)
	})
}

// join tries seeds and expired members, for at most StartupGrace, and reports the
// result to the kernel. At the start, a seed that is already a member counts as an
// answer, since it has joined this node. In a rejoin, a first member may be all that is
// known so far, so members are tried, too. The function hopeless decides which errors
// end the attempts.
func (j *joiner) join(ctx context.Context, rejoin bool, hopeless func(error) bool) error {
	a := j.agent
	grace, cancel := context.WithTimeout(ctx, a.cfg.StartupGrace)
	defer cancel()
	for {
		t, err := j.targets(grace, rejoin)
		if err != nil {
			return err
		}
		answered := t.member
		if !answered {
			answered, err = j.tryJoin(grace, t.addrs)
		}
		if answered {
			return j.joined(ctx, t.fences, true)
		}
		if hopeless(err) {
			return err
		}
		if (len(t.addrs) == 0 && j.seedsAreFixed()) || !pause(grace) {
			if err = errors.Join(t.lookup, err); err != nil && ctx.Err() == nil {
				a.cfg.Log.Warn("no seed answered; continuing alone and retrying", "err", err)
			}
			return j.joined(ctx, t.fences, false)
		}
	}
}

// joined reports the end of an attempt to the kernel.
func (j *joiner) joined(ctx context.Context, fences uint64, answered bool) error {
	return j.agent.do(ctx, func(now time.Time, n *node.Node) { n.Joined(now, fences, answered) })
}

// pause waits between two attempts, and reports whether there is time for another.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(retryFirst + rand.N(retryFirst)):
		return true
	case <-ctx.Done():
		return false
	}
}

// seedsAreFixed reports whether all seeds are addresses. The addresses behind a name
// may change while other nodes start.
func (j *joiner) seedsAreFixed() bool {
	return !slices.ContainsFunc(j.agent.cfg.Join, func(seed string) bool {
		_, err := netip.ParseAddrPort(seed)
		return err != nil
	})
}

// heal tries the seeds and expired members that are not members now.
func (j *joiner) heal(ctx context.Context) {
	t, _ := j.targets(ctx, false)
	if _, err := j.tryJoin(ctx, t.addrs[:min(len(t.addrs), triesAtOnce)]); err != nil {
		j.agent.cfg.Log.Debug("rejoin failed", "err", err)
	}
}

// targets are the addresses of one attempt.
type targets struct {
	addrs  []string // seeds, then expired members, without members and this node
	member bool     // a seed is a live member already
	fences uint64   // the kernel's count when the targets were taken
	lookup error    // of names of seeds
}

// targets returns the addresses to try. After the end of ctx it resolves no names. It
// fails if the agent has ended.
func (j *joiner) targets(ctx context.Context, rejoin bool) (t targets, err error) {
	a := j.agent
	var known node.Contacts
	if err := a.do(context.Background(), func(now time.Time, n *node.Node) { known = n.Contacts(now) }); err != nil {
		return t, err
	}
	t.fences = known.Fences
	members, expired := known.Members, known.Expired
	if rejoin {
		expired, members = append(expired, members...), nil
	}
	var seeds []string
	for _, seed := range a.cfg.Join {
		resolving, cancel := context.WithTimeout(ctx, resolveTime)
		found, err := gossip.Resolve(resolving, seed)
		cancel()
		seeds, t.lookup = append(seeds, found...), errors.Join(t.lookup, err)
	}
	rand.Shuffle(len(seeds), func(i, k int) { seeds[i], seeds[k] = seeds[k], seeds[i] })
	rand.Shuffle(len(expired), func(i, k int) { expired[i], expired[k] = expired[k], expired[i] })
	for _, addr := range append(seeds, expired...) {
		switch {
		case slices.Contains(members, addr):
			t.member = true
		case addr != a.Addr() && !slices.Contains(t.addrs, addr):
			t.addrs = append(t.addrs, addr)
		}
	}
	return t, nil
}

// tryJoin tries the addresses, a few at a time, until one answers.
func (j *joiner) tryJoin(ctx context.Context, addrs []string) (answered bool, err error) {
	for group := range slices.Chunk(addrs, triesAtOnce) {
		if ctx.Err() != nil {
			return false, errors.Join(err, ctx.Err())
		}
		j.agent.env.Gate()
		results := make(chan error, len(group))
		for _, addr := range group {
			j.agent.wait.Go(func() { results <- j.agent.gossip.Join(addr) })
		}
		for range group {
			e := <-results
			if e == nil {
				return true, nil
			}
			err = errors.Join(err, e)
		}
	}
	return false, err
}
