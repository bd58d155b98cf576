//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// modelRedis performs on a real Redis what a world performs on its store in memory, and compares the answers. A nil
// modelRedis does nothing.
//
// The world runs in a synctest bubble, with virtual time. The calls of Redis run outside of the bubble. While the world
// waits for them, virtual time stands still. The heartbeats in Redis age as virtual time passes. Pins last for hours,
// so their age does not matter.
type modelRedis struct {
	server   *redistest.Server
	restarts bool // restart Redis to lose or restore data
	do       chan func()
	did      chan struct{}
	calls    int
	done     map[string]int // how often each action was taken

	users   map[lease.Incarnation]*modelUser
	epochs  []modelEpochs // of the room, oldest first
	lag     int64         // milliseconds from Redis's time to virtual time, when the heartbeats were last aged
	saved   int64         // lag when the data was saved
	problem error         // the first difference
}

// modelUser is the Redis client of one incarnation of a node.
type modelUser struct {
	*redisstore.Store
	told   atomic.Uint64 // number of notifications
	knows  bool          // it has read the room's pin, and has not been notified since
	before uint64        // told when it read the pin
}

// modelEpochs contains the epochs of one hosting in both stores.
type modelEpochs struct{ memory, redis uint64 }

func newModelRedis(t *testing.T, server *redistest.Server) *modelRedis {
	r := &modelRedis{
		server: server,
		do:     make(chan func()),
		did:    make(chan struct{}),
		done:   make(map[string]int),
		users:  make(map[lease.Incarnation]*modelUser),
	}
	go func() {
		for f := range r.do {
			go func() { // in its own goroutine, because f may end the test
				defer func() { r.did <- struct{}{} }()
				f()
			}()
		}
	}()
	t.Cleanup(func() {
		close(r.do)
		for _, u := range r.users {
			_ = u.Close()
		}
	})
	return r
}

// outside runs f outside of the bubble.
func (r *modelRedis) outside(f func() error) {
	r.calls++
	r.do <- func() {
		if err := f(); r.problem == nil {
			r.problem = err
		}
	}
	<-r.did
}

// begin deletes all data in Redis before a new world.
func (r *modelRedis) begin() {
	r.epochs, r.problem = nil, nil
	r.outside(func() error { return r.notifies("FLUSHALL") })
}

// user returns the Redis client of an incarnation, and creates it if necessary.
func (r *modelRedis) user(at lease.Incarnation) (*modelUser, error) {
	if u := r.users[at]; u != nil {
		return u, nil
	}
	redis, err := rueidisconn.Open(context.Background(), rueidisconn.Options{URL: r.server.URL()})
	if err != nil {
		return nil, err
	}
	s, err := redisstore.New(redis, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	u := &modelUser{Store: s}
	u.Notify(func(string) { u.told.Add(1) })
	if err := modelWait(func() bool { return u.Notified() == nil }); err != nil {
		return nil, errors.Join(err, u.Notified())
	}
	r.users[at] = u
	return u, nil
}

// swap performs an op of a process on Redis, and compares the result with the result of the store in memory.
func (r *modelRedis) swap(by lease.Incarnation, op pinstore.Op, want pinstore.Result) {
	if r == nil {
		return
	}
	r.outside(func() error {
		u, err := r.user(by)
		if err != nil {
			return err
		}
		op.Room, op.If.Epoch, op.Set.Epoch = modelRoom, r.epochOf(op.If.Epoch), r.epochOf(op.Set.Epoch)
		got := u.Swap(context.Background(), op)[0]
		if err := r.match(op, got, want); err != nil {
			return err
		}
		if moved := op.If.Incarnation != op.Set.Incarnation || op.Set.Epoch > op.If.Epoch; got.Done && moved && op.If != (pinstore.Pin{}) {
			if err := r.notified(u); err != nil {
				return fmt.Errorf("%+v: %w", op, err)
			}
		}
		u.knows, u.before = got.Pin != pinstore.Pin{}, u.told.Load()
		return nil
	})
}

// match compares the result of an op on Redis with the result in memory.
func (r *modelRedis) match(op pinstore.Op, got, want pinstore.Result) error {
	epoch := got.Pin.Epoch
	if is, ok := r.hosting(want.Pin.Epoch); ok || want.Pin.Epoch == 0 {
		got.Pin.Epoch = is.memory
		if epoch != is.redis {
			got.Pin.Epoch = 0
		}
	} else if n := len(r.epochs); n == 0 || (want.Pin.Epoch > r.epochs[n-1].memory && epoch > r.epochs[n-1].redis) {
		r.epochs = append(r.epochs, modelEpochs{want.Pin.Epoch, epoch})
		got.Pin.Epoch = want.Pin.Epoch
	}
	if got.Fresh = want.Fresh; got != want {
		return fmt.Errorf("%w: %+v: Redis %+v with epoch %d, memory %+v, in epochs %v", errModelDiffers, op, got, epoch, want, r.epochs)
	}
	return nil
}

// hosting returns the epochs of the hosting with the given epoch in memory.
func (r *modelRedis) hosting(memory uint64) (modelEpochs, bool) {
	i, ok := slices.BinarySearchFunc(r.epochs, memory, func(e modelEpochs, m uint64) int { return int(e.memory) - int(m) })
	if !ok {
		return modelEpochs{}, false
	}
	return r.epochs[i], true
}

// epochOf converts an epoch in memory to an epoch in Redis that has the same order among the room's epochs.
func (r *modelRedis) epochOf(memory uint64) uint64 {
	for _, e := range slices.Backward(r.epochs) {
		if e.memory <= memory {
			return e.redis + memory - e.memory
		}
	}
	return memory
}

// notified waits until all users that have the pin know that u has changed it.
func (r *modelRedis) notified(u *modelUser) error {
	for at, other := range r.users {
		if other == u || !other.knows {
			continue
		}
		other.knows = false
		if err := modelWait(func() bool { return other.told.Load() > other.before }); err != nil {
			return fmt.Errorf("%w: %v (told %d, before %d)", errors.Join(errModelSilent, other.Notified()), at, other.told.Load(), other.before)
		}
	}
	return nil
}

func (r *modelRedis) index(
	by lease.Incarnation,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
	found []pinstore.Entry,
) {
	if r == nil {
		return
	}
	var got []pinstore.Entry
	r.outside(func() error {
		u, err := r.user(by)
		if err == nil {
			got, err = u.Index(context.Background(), parts, want, limit)
		}
		return err
	})
	for i, e := range got {
		for _, is := range r.epochs {
			if e.Pin.Epoch == is.redis {
				got[i].Pin.Epoch = is.memory
			}
		}
	}
	if r.problem == nil && !slices.Equal(got, found) {
		r.problem = fmt.Errorf("%w: index: Redis has %v, memory %v", errModelDiffers, got, found)
	}
}

// heartbeatsKey is the key of the heartbeats in Redis; see redisstore.
const heartbeatsKey = redisstore.DefaultPrefix + "lives"

// ageHeartbeats makes the heartbeats as old as they are in virtual time, plus a millisecond, because Redis still
// accepts a heartbeat exactly at the end of its TTL.
const ageHeartbeats = `
local time = redis.call('TIME')
local lag = ARGV[1] - math.floor(time[1] * 1000 + time[2] / 1000)
for _, at in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  redis.call('ZINCRBY', KEYS[1], ARGV[2] - lag - 1, at)
end
redis.call('PEXPIRE', KEYS[1], 3600000)
return lag`

func (r *modelRedis) heartbeat(by, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation, want []bool) {
	if r == nil {
		return
	}
	now := time.Now().UnixMilli()
	r.outside(func() error {
		lag, err := r.server.Try("EVAL", ageHeartbeats, "1", heartbeatsKey, strconv.FormatInt(now, 10), strconv.FormatInt(r.lag, 10))
		if err != nil {
			return err
		}
		if r.lag, err = strconv.ParseInt(lag, 10, 64); err != nil {
			return err
		}
		u, err := r.user(by)
		if err != nil {
			return err
		}
		got, err := u.Heartbeat(context.Background(), self, ttl, ask)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%w: of %v Redis has %v, memory %v", errModelDiffers, ask, got, want)
		}
		if err != nil || ttl == 0 || self == (lease.Incarnation{}) {
			return err
		}
		// Date the heartbeat at the moment when Redis read its clock for the lag, because a busy machine may have
		// paused since then.
		at := fmt.Sprintf("%s|%d", self.Node, self.Number)
		_, err = r.server.Try("ZADD", heartbeatsKey, "XX", strconv.FormatInt(now-r.lag+ttl.Milliseconds(), 10), at)
		return err
	})
}

// lose makes Redis lose its data. If r.restarts is set, Redis restarts, too.
func (r *modelRedis) lose() {
	if r == nil {
		return
	}
	r.outside(func() error {
		if !r.restarts {
			_, err := r.server.Try("SCRIPT", "FLUSH")
			return errors.Join(err, r.notifies("FLUSHALL"))
		}
		_, err1 := r.server.Try("FLUSHALL")
		_, err2 := r.server.Try("SAVE")
		return errors.Join(err1, err2, r.restart())
	})
}

// expire makes all keys of Redis expire. Redis does not have to notify anyone.
func (r *modelRedis) expire() {
	if r == nil {
		return
	}
	r.outside(func() error {
		for _, u := range r.users {
			u.knows = false
		}
		_, err := r.server.Try("EVAL", expireAll, "0")
		return err
	})
}

const expireAll = `
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('PEXPIREAT', key, 1)
end`

// save makes Redis save a copy of its data.
func (r *modelRedis) save() {
	if r == nil {
		return
	}
	r.outside(func() error {
		r.saved = r.lag
		_, err := r.server.Try("SAVE")
		return err
	})
}

// load makes Redis return to its saved copy.
func (r *modelRedis) load() {
	if r == nil {
		return
	}
	r.outside(func() error {
		r.lag = r.saved
		if r.restarts {
			return r.restart()
		}
		return r.notifies("DEBUG", "RELOAD", "NOSAVE")
	})
}

// restart kills Redis, starts it with its last copy of the data, and waits until all users are connected and notified.
func (r *modelRedis) restart() error {
	for _, u := range r.users {
		u.before = u.told.Load()
	}
	r.server.Restart()
	for at, u := range r.users {
		u.knows = false
		if err := modelWait(func() bool {
			_, err := u.Heartbeat(context.Background(), lease.Incarnation{}, 0, nil)
			return err == nil && u.Swap(context.Background(), pinstore.Op{Room: "another"})[0].Err == nil && u.told.Load() > u.before && u.Notified() == nil
		}); err != nil {
			return fmt.Errorf("%v after a restart: %w", at, err)
		}
	}
	return nil
}

// notifies runs a command that replaces all data, closes the connections, and waits until all users have been notified
// and have connected again.
func (r *modelRedis) notifies(command ...string) error {
	for _, u := range r.users {
		u.before = u.told.Load()
	}
	if _, err := r.server.Try(command...); err != nil {
		return fmt.Errorf("%v: %w", command, err)
	}
	for _, kind := range []string{"pubsub", "normal"} { // CLIENT KILL does not close its own connection
		if _, err := r.server.Try("CLIENT", "KILL", "TYPE", kind); err != nil {
			return err
		}
	}
	for at, u := range r.users {
		u.knows = false
		if err := modelWait(func() bool {
			return u.Swap(context.Background(), pinstore.Op{Room: "another"})[0].Err == nil && u.told.Load() > u.before && u.Notified() == nil
		}); err != nil {
			return fmt.Errorf("%v of %v: %w", at, command, err)
		}
	}
	return nil
}

func modelWait(done func() bool) error {
	for deadline := time.Now().Add(5 * time.Second); !done(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			return errModelSilent
		}
	}
	return nil
}

var (
	errModelDiffers = errors.New("answers of Redis and of the store in memory differ")
	errModelSilent  = errors.New("no notification from Redis")
)

// Random walks go through all worlds, with a real Redis next to the store in memory. Both must give the same answers,
// Redis must notify, and the invariants must hold. Processes and Redis are killed between any two calls of the store,
// even between the run of a script and its answer.
func TestRoomModelOnRedis(t *testing.T) {
	walks := 10
	switch {
	case *modelLong:
		walks = 100
	case testing.Short():
		walks = 2
	}
	r := newModelRedis(t, redistest.Start(t))
	modelWalks(t, r, walks)
	if *modelLong {
		r.restarts = true
		modelWalks(t, r, 20)
	}
	t.Log(r.calls, "calls")
	all := strings.Join(slices.Collect(maps.Keys(r.done)), "\n")
	for _, what := range []string{
		" ends", "starts again", "stands still", "the answer to the swap", "gives up its swap", "takes a late op",
		"loses its data", "goes back to its copy", "jumps ahead", "releases by name",
	} {
		if !testing.Short() && !strings.Contains(all, what) {
			t.Errorf("no walk has an action %q", what)
		}
	}
}

// modelWalks goes through each world on the given number of random walks.
func modelWalks(t *testing.T, r *modelRedis, walks int) {
	for i, c := range modelWorlds {
		if !t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := range walks {
					way, err := modelWalk(r, c.limits, c.hosted, rand.New(rand.NewPCG(uint64(i), uint64(n))))
					if err != nil {
						t.Fatalf("walk %d: %v, after:\n%s", n, err, way)
					}
				}
			})
		}) {
			return // a difference may take seconds to show
		}
	}
}

// modelWalk goes on a random walk through a world, lets the world come to rest, and returns the actions.
func modelWalk(r *modelRedis, l modelLimits, hosted string, rng *rand.Rand) (way string, err error) {
	r.begin()
	w := newModelWorld(l, "", r)
	defer w.abandon()
	for _, a := range modelPrepare(hosted) {
		a.do(w)
	}
	const most = 60
	for range most {
		all := w.actions()
		if len(all) == 0 || w.broken != "" || r.problem != nil {
			break
		}
		a := all[rng.IntN(len(all))]
		way += a.what + "\n"
		r.done[a.what]++
		a.do(w)
	}
	if w.broken == "" && r.problem == nil {
		way += "all comes to rest\n"
		w.broken = w.rest()
	}
	if w.broken != "" {
		return way, fmt.Errorf("broken: %s", w.broken)
	}
	return way, r.problem
}
