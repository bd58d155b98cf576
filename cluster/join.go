package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
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
	retryFirst  = 250 * time.Millisecond // between attempts until a seed answers
	resolveTime = 5 * time.Second
	joinsAtOnce = 3 // seeds tried in a row when rejoining
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
			_ = j.enter(ctx, func(error) bool { return false })
		case <-ctx.Done():
		}
	}
}

// enterFirst is the joining at the start. It fails if nobody lets this node in
// and somebody says no.
func (j *joiner) enterFirst(ctx context.Context) error {
	if j.agent.cfg.Bootstrap {
		return j.agent.do(ctx, func(l *loop) { l.entered(false) })
	}
	tries := 0
	return j.enter(ctx, func(err error) bool {
		tries++
		var settings *SettingsError
		// A seed that is just being stopped hangs up, too.
		return errors.As(err, &settings) || errors.Is(err, ErrKey) || (errors.Is(err, ErrCluster) && tries >= 3)
	})
}

// enter joins through any seed or lost member, for at most StartupGrace, and
// tells the loop how it ended. hopeless decides whether to give up on an error.
func (j *joiner) enter(ctx context.Context, hopeless func(error) bool) error {
	a := j.agent
	grace, cancel := context.WithTimeout(ctx, a.cfg.StartupGrace)
	defer cancel()
	for {
		targets, lookup := j.targets(grace)
		answered, err := j.knock(grace, targets)
		if answered {
			return a.do(ctx, func(l *loop) { l.entered(true) })
		}
		if hopeless(err) {
			return err
		}
		if (len(targets) == 0 && j.alone()) || grace.Err() != nil {
			if err = errors.Join(lookup, err); err != nil {
				a.cfg.Log.Warn("no seed answered; going on alone and trying again", "err", err)
			}
			return a.do(ctx, func(l *loop) { l.entered(false) })
		}
		select {
		case <-time.After(retryFirst + rand.N(retryFirst)):
		case <-grace.Done():
		}
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

// heal tries a few of those that should be members and are not.
func (j *joiner) heal(ctx context.Context) {
	targets, _ := j.targets(ctx)
	if len(targets) > joinsAtOnce {
		rand.Shuffle(len(targets), func(i, k int) { targets[i], targets[k] = targets[k], targets[i] })
		targets = targets[:joinsAtOnce]
	}
	for _, addr := range targets {
		if ctx.Err() != nil || len(j.again) > 0 {
			return
		}
		j.agent.env.Gate()
		if err := j.agent.node.Join(addr); err != nil {
			j.agent.cfg.Log.Debug("rejoin failed", "addr", addr, "err", err)
		}
	}
}

// targets returns the addresses of seeds and lost members that are neither this
// node nor live members, and what went wrong in resolving them.
func (j *joiner) targets(ctx context.Context) ([]string, error) {
	a := j.agent
	var members, addrs []string
	if err := a.do(ctx, func(l *loop) {
		members = l.set.Peers(nil)
		addrs = l.set.Lost(nil)
	}); err != nil {
		return nil, err
	}
	var errs []error
	for _, seed := range a.cfg.Join {
		resolving, cancel := context.WithTimeout(ctx, resolveTime)
		found, err := gossip.Resolve(resolving, seed)
		cancel()
		addrs, errs = append(addrs, found...), append(errs, err)
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	addrs = slices.DeleteFunc(addrs, func(addr string) bool {
		return addr == a.Addr() || slices.Contains(members, addr)
	})
	return addrs, errors.Join(errs...)
}

// knock tries the addresses until one answers.
func (j *joiner) knock(ctx context.Context, addrs []string) (answered bool, err error) {
	var errs []error
	for _, i := range rand.Perm(len(addrs)) {
		if ctx.Err() != nil {
			break
		}
		j.agent.env.Gate()
		err := j.agent.node.Join(addrs[i])
		if err == nil {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}
