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

// joiner is the goroutine that knocks at seeds: until one answers at first, and
// for ever at those that are not members, because a long split does not heal by
// itself. It waits for the network, which the loop must not.
type joiner struct {
	agent *Agent
	first chan error    // the result of the first joining
	again chan struct{} // told by the loop: join anew, now
}

const (
	retryFirst   = 250 * time.Millisecond // between attempts until a seed answers
	resolveTime  = 5 * time.Second
	knocksAtOnce = 8 // one that answers must not wait for those that do not
)

func (j *joiner) run(ctx context.Context) {
	j.first <- j.enterFirst(ctx)
	for ctx.Err() == nil {
		wait := j.agent.cfg.RejoinInterval
		wait += time.Duration((rand.Float64()*0.4 - 0.2) * float64(wait))
		select {
		case <-time.After(wait):
			j.heal(ctx)
		case <-j.again:
			_ = j.enter(ctx, true, func(error) bool { return false })
		case <-ctx.Done():
		}
	}
}

// enterFirst is the joining at the start. It fails if nobody lets this node in
// and somebody says no.
func (j *joiner) enterFirst(ctx context.Context) error {
	if j.agent.cfg.Bootstrap {
		return j.joined(ctx, 0, false)
	}
	tries := 0
	return j.enter(ctx, false, func(err error) bool {
		tries++
		var settings *SettingsError
		// A seed that is just being stopped hangs up, too.
		return errors.As(err, &settings) || errors.Is(err, ErrKey) || (errors.Is(err, ErrCluster) && tries >= 3)
	})
}

// enter joins through any seed or lost member, for at most StartupGrace, and
// tells the loop how it ended. At first, a seed that has joined this node counts
// as one that answered; later (anew), what trickled in from a member may be all
// that is known, so members are asked, too. hopeless decides whether to give up
// on an error.
func (j *joiner) enter(ctx context.Context, anew bool, hopeless func(error) bool) error {
	a := j.agent
	grace, cancel := context.WithTimeout(ctx, a.cfg.StartupGrace)
	defer cancel()
	for {
		t, err := j.targets(grace, anew)
		if err != nil {
			return err
		}
		answered := t.member
		if !answered {
			answered, err = j.knock(grace, t.addrs)
		}
		if answered {
			return j.joined(ctx, t.fences, true)
		}
		if hopeless(err) {
			return err
		}
		if (len(t.addrs) == 0 && j.alone()) || !pause(grace) {
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

// alone reports whether no seed can turn up later: each is a fixed address. What
// a name stands for may change while others start.
func (j *joiner) alone() bool {
	return !slices.ContainsFunc(j.agent.cfg.Join, func(seed string) bool {
		_, err := netip.ParseAddrPort(seed)
		return err != nil
	})
}

// heal tries those that should be members and are not, seeds first.
func (j *joiner) heal(ctx context.Context) {
	t, _ := j.targets(ctx, false)
	if _, err := j.knock(ctx, t.addrs[:min(len(t.addrs), knocksAtOnce)]); err != nil {
		j.agent.cfg.Log.Debug("rejoin failed", "err", err)
	}
}

// targets is whom to knock at.
type targets struct {
	addrs  []string // seeds, then lost members, that are neither members nor this node
	member bool     // a seed is a live member already
	fences uint64   // the loop's count when the targets were taken
	lookup error    // what went wrong in resolving seeds
}

// targets takes stock, even if ctx is over: then it finds no names behind seeds. It
// fails if the agent has ended.
func (j *joiner) targets(ctx context.Context, anew bool) (t targets, err error) {
	a := j.agent
	var known node.Contacts
	if err := a.do(context.Background(), func(now time.Time, n *node.Node) { known = n.Contacts(now) }); err != nil {
		return t, err
	}
	t.fences = known.Fences
	members, lost := known.Members, known.Lost
	if anew {
		lost, members = append(lost, members...), nil
	}
	var seeds []string
	for _, seed := range a.cfg.Join {
		resolving, cancel := context.WithTimeout(ctx, resolveTime)
		found, err := gossip.Resolve(resolving, seed)
		cancel()
		seeds, t.lookup = append(seeds, found...), errors.Join(t.lookup, err)
	}
	rand.Shuffle(len(seeds), func(i, k int) { seeds[i], seeds[k] = seeds[k], seeds[i] })
	rand.Shuffle(len(lost), func(i, k int) { lost[i], lost[k] = lost[k], lost[i] })
	for _, addr := range append(seeds, lost...) {
		switch {
		case slices.Contains(members, addr):
			t.member = true
		case addr != a.Addr() && !slices.Contains(t.addrs, addr):
			t.addrs = append(t.addrs, addr)
		}
	}
	return t, nil
}

// knock tries the addresses, a few at a time, until one answers.
func (j *joiner) knock(ctx context.Context, addrs []string) (answered bool, err error) {
	for group := range slices.Chunk(addrs, knocksAtOnce) {
		if ctx.Err() != nil {
			return false, errors.Join(err, ctx.Err())
		}
		j.agent.env.Gate()
		results := make(chan error, len(group))
		for _, addr := range group {
			j.agent.wait.Go(func() { results <- j.agent.gossip.Join(addr) })
		}
		for range group {
			if e := <-results; e == nil {
				answered = true
			} else {
				err = errors.Join(err, e)
			}
			if answered {
				return true, nil
			}
		}
	}
	return false, err
}
