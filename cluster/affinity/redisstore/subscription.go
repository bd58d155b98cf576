package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// Notify implements pinstore.Store. The store also calls changed with "" when it loses the subscription or a
// connection to any server, so that users do not rely on stale pins.
func (s *Store) Notify(changed func(room string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	this := &user{changed}
	users := slices.Concat(s.users(), []*user{this})
	s.changed.Store(&users)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		users := slices.DeleteFunc(slices.Clone(s.users()), func(u *user) bool { return u == this })
		s.changed.Store(&users)
	}
}

// user receives notifications of changes.
type user struct{ changed func(room string) }

// users returns the users to notify.
func (s *Store) users() []*user {
	if users := s.changed.Load(); users != nil {
		return *users
	}
	return nil
}

// notify notifies all users that a room has changed. The room "" means that changes may have been missed or
// lost.
func (s *Store) notify(room string) {
	for _, u := range s.users() {
		u.changed(room)
	}
}

// notifyOthers notifies the users of this Store of each other's changes. The subscription ignores messages
// that this Store has published, so the subscription does not report these changes.
// An op that failed may have changed the pin, or may change the pin later.
func (s *Store) notifyOthers(ops []pinstore.Op, results []pinstore.Result) {
	shared := len(s.users()) > 1
	for i, op := range ops {
		switch failed := results[i].Err != nil; {
		case reads(&op), op.If == (pinstore.Pin{}):
		case failed:
			s.news.unsure.add(op.Room)
			fallthrough
		case results[i].Done && (op.Set.Incarnation != op.If.Incarnation || results[i].Pin.Epoch != op.If.Epoch):
			if shared {
				s.notify(op.Room)
			}
		}
	}
}

// unanswered contains the rooms of recent ops that failed and may still take effect.
type unanswered struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (u *unanswered) add(room string) {
	const most = 4096 // for further rooms, only the notification is lost, and answers are fresh for at most 30 s
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if len(u.until) >= most {
		maps.DeleteFunc(u.until, func(_ string, until time.Time) bool { return until.Before(now) })
	}
	if u.until == nil {
		u.until = make(map[string]time.Time)
	}
	if len(u.until) < most {
		u.until[room] = now.Add(maxFresh)
	}
}

func (u *unanswered) has(room string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.until[room])
}

// Notified returns nil if this store receives changes by other stores immediately. Otherwise, Notified
// returns the reason. Without notifications, answers are fresh for 1 s in place of 30 s, so lookups cost
// more. A node then takes up to 5 s to notice that another node has taken over one of its rooms.
func (s *Store) Notified() error {
	if s.news.alive() != nil {
		return nil
	}
	return storeError("subscription to "+s.news.channel, *s.news.why.Load())
}

// subscription receives the names of rooms whose pins other stores have changed. The scripts publish these
// rooms on a channel whose name starts with the prefix.
//
// A server, a proxy or a link between the servers of a Redis Cluster can silently drop messages. Therefore,
// the store also publishes a message to itself, called an echo, at the start and then every 5 s. The
// subscription works once an echo has come back. If an echo does not come back, the subscription is lost.
//
// The channel is not a sharded channel, even in a Redis Cluster. While a slot moves, the receiving master
// already runs the scripts for rooms that have moved. However, the receiving master does not yet send messages of its sharded
// channels to the subscribers at the old master.
type subscription struct {
	conn    redisconn.Conn
	channel string
	self    string // the sender of this store's own messages
	changed func(room string)

	// life identifies the current subscription. life is nil while there is no subscription.
	life atomic.Pointer[subscribed]
	why  atomic.Pointer[error] // why there is no subscription

	unsure unanswered    // rooms of own ops without an answer
	echoed chan struct{} // holds one
	broken chan struct{} // holds one: life has ended, although the subscription may work
}

// subscribed identifies a working subscription.
type subscribed struct{ _ byte }

const (
	echoEvery = 5 * time.Second
	echoTime  = 5 * time.Second // for an echo to come back
)

var (
	errEarly  = errors.New("still subscribing")
	errNoEcho = fmt.Errorf("a message to itself did not come back within %v", echoTime)
	errLost   = errors.New("a connection was lost")
)

func newSubscription(conn redisconn.Conn, prefix string, changed func(room string)) *subscription {
	n := &subscription{
		conn: conn, channel: prefix + "changes", self: strconv.FormatUint(rand.Uint64(), 36), changed: changed,
		echoed: make(chan struct{}, 1), broken: make(chan struct{}, 1),
	}
	n.why.Store(&errEarly)
	return n
}

// alive returns the subscription, or nil while the subscription does not work. An answer can have a long
// freshness only if the same subscription was alive before the query and after the answer.
func (n *subscription) alive() *subscribed { return n.life.Load() }

// run keeps the store subscribed until life ends.
func (n *subscription) run(life context.Context) {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	for pause := least; life.Err() == nil; pause = min(2*pause, most) {
		worked, err := n.subscribe(life)
		if life.Err() != nil {
			return
		}
		if n.end(err) {
			n.changed("")
		}
		if worked {
			pause = least
		}
		// Add jitter, so that the nodes of a fleet do not all subscribe at the same time.
		wait(life, pause/2+rand.N(pause/2))
	}
}

// subscribe subscribes once and returns when the subscription is lost. subscribe reports whether the
// subscription ever worked.
func (n *subscription) subscribe(life context.Context) (worked bool, err error) {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	var receiver sync.WaitGroup
	defer receiver.Wait()
	defer cancel(nil)
	receiver.Go(func() { cancel(n.conn.Subscribe(ctx, n.channel, n.message)) })
	for {
		drain(n.broken)
		if err := n.listens(ctx, worked); err != nil {
			return worked, err
		}
		worked = true
		if len(n.broken) > 0 { // the subscription was lost after the echo was sent
			continue
		}
		if n.life.Load() == nil {
			n.life.Store(new(subscribed))
		}
		select {
		case <-time.After(echoEvery):
		case <-n.broken: // listen again now
		case <-ctx.Done():
			return worked, context.Cause(ctx)
		}
	}
}

// listens waits until an echo comes back. listens repeats the first echoes, because the store may publish
// them before the server has registered the subscription.
func (n *subscription) listens(ctx context.Context, worked bool) error {
	drain(n.echoed) // discard an echo that came late
	again, until := 5*time.Millisecond, time.Now().Add(echoTime)
	if worked {
		again = time.Second
	}
	for ; ; again = min(2*again, time.Second) {
		failed := n.echo(ctx) // not conclusive: in a Redis Cluster, the echo may have gone to a server that is down
		select {
		case <-n.echoed:
			return nil
		case <-time.After(again):
			if time.Now().After(until) {
				return cmp.Or(failed, errNoEcho)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// echo publishes a message from this store to itself.
func (n *subscription) echo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, echoTime)
	defer cancel()
	return n.conn.Do(ctx, redisconn.Command{Head: []string{"PUBLISH", n.channel, n.self}})[0].Err
}

// message handles a message. The first line is the sender, and each further line is a room. An echo lists no
// rooms.
func (n *subscription) message(payload string) {
	sender, rooms, _ := strings.Cut(payload, "\n")
	if sender == n.self && rooms == "" {
		signal(n.echoed)
	}
	for room := range strings.SplitSeq(rooms, "\n") {
		if room != "" && (sender != n.self || n.unsure.has(room)) { // "" would mean a loss
			n.changed(room)
		}
	}
}

// lose handles a lost connection or data loss on the server. lose notifies the users even if there was no
// subscription.
func (n *subscription) lose(why error) {
	n.end(why)
	signal(n.broken)
	n.changed("")
}

// end ends the current subscription and reports whether there was one.
func (n *subscription) end(why error) bool {
	n.why.Store(&why)
	return n.life.Swap(nil) != nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

func wait(life context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-life.Done():
	}
}
