package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// patience is the time limit for each step on a busy machine.
const patience = time.Minute

// deployment is a fleet of media servers, each in its own pod, and the participants of their rooms.
type deployment struct {
	t     *testing.T
	s     *server
	api   *rest.Config
	redis string
	pods  atomic.Pointer[[]*pod] // the running pods; replaced as a whole
}

// pod is a pod in which a media server runs.
type pod struct {
	name    string
	agent   *cluster.Agent
	rooms   *affinity.Resolver
	store   *redisstore.Store
	serving atomic.Int64 // participants
	costs   chan error
}

// grow starts pods one after another, and waits until all agents agree.
func (d *deployment) grow(names ...string) {
	d.t.Helper()
	for _, name := range names {
		p := &pod{name: name, costs: make(chan error, 1)}
		p.agent = startWith(d.t, d.s, d.api, name, cluster.Config{Capacity: 4000, LeaseTTL: 30 * time.Second, MaxSkew: 30 * time.Second})
		conn, err := rueidisconn.Open(d.t.Context(), rueidisconn.Options{URL: redistest.Patient(d.redis)})
		if err != nil {
			d.t.Fatal(err)
		}
		if p.store, err = redisstore.New(conn, redisstore.Options{}); err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = p.store.Close() })
		if p.rooms, err = affinity.Start(p.agent, p.store, affinity.Config{Budget: patience, ReportLoad: true, Log: quiet}); err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = p.rooms.Close() })
		go func() {
			p.costs <- reportCost(d.t.Context(), p.agent, Options{Namespace: namespace, Pod: name, API: d.api}, 0)
		}()
		now := append(slices.Clone(*d.pods.Load()), p)
		d.pods.Store(&now)
		d.s.put(agents(now)...)
	}
	agree(d.t, agents(*d.pods.Load())...)
}

func agents(pods []*pod) (all []*cluster.Agent) {
	for _, p := range pods {
		all = append(all, p.agent)
	}
	return all
}

// shrink deletes all pods except n, as a ReplicaSet controller does. It chooses the pods with the lowest cost, and
// deletes all of them at the same time. It returns when these pods have ended.
func (d *deployment) shrink(n int) (gone []*pod) {
	d.t.Helper()
	pods := slices.Clone(*d.pods.Load())
	for _, p := range pods {
		eventually(d.t, "the load of "+p.name+" as its cost", func() bool {
			_, units := p.rooms.Hosted() // the node reports this with its next heartbeat
			return !differs(int32(units), int32(d.s.cost(p.name)))
		})
	}
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(d.s.cost(a.name), d.s.cost(b.name)) })
	gone, left := pods[:len(pods)-n], pods[len(pods)-n:]
	d.pods.Store(&left)
	var ending sync.WaitGroup
	for _, p := range gone {
		ending.Go(func() {
			if err := p.terminate(); err != nil {
				d.t.Errorf("%s: %v", p.name, err)
			}
		})
	}
	ending.Wait()
	d.s.put(agents(left)...)
	agree(d.t, agents(left)...)
	return gone
}

// terminate does what a program does after SIGTERM.
func (p *pod) terminate() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.agent.Drain(ctx)
	if err == nil {
		err = evacuate.Run(ctx, p.agent, p.rooms, evacuate.Plan{Rate: 50, Deadline: patience}, nil)
	}
	for p.serving.Load() > 0 && ctx.Err() == nil { // participants that are about to move
		time.Sleep(tick)
	}
	_, _ = p.rooms.Close(), p.agent.Leave(ctx) // on a busy machine, they stop waiting for other nodes after a few seconds
	return errors.Join(err, <-p.costs)
}

// tick is the interval at which a participant gets media.
const tick = 20 * time.Millisecond

// link is the connection of a participant to a pod.
type link struct {
	at     *pod
	hangUp chan struct{}
}

// news is what a participant receives from a link: media, that the room has moved, or that the link has ended.
type news struct {
	from  *link
	moved *affinity.NotOwnerError
	ended bool
	err   error
}

// serve serves a participant until the participant hangs up. When the room moves, serve tells the participant and
// continues to send media.
func (p *pod) serve(room string, size int, l *link, to chan<- news) {
	defer p.serving.Add(-1)
	err := p.rooms.Serve(context.Background(), room, affinity.Demand{Size: size}, func(ctx context.Context, _ *affinity.Hosting) error {
		media := time.NewTicker(tick)
		defer media.Stop()
		lost := ctx.Done()
		for {
			n := news{from: l}
			select {
			case <-l.hangUp:
				return nil
			case <-lost:
				lost = nil
				if !errors.As(context.Cause(ctx), &n.moved) {
					return context.Cause(ctx)
				}
			case <-media.C:
			}
			select {
			case to <- n:
			case <-l.hangUp:
				return nil
			}
		}
	})
	select {
	case to <- news{from: l, ended: true, err: err}:
	case <-l.hangUp:
	}
}

// participant stays in a room during the whole test. When the room moves, the participant connects to the new node
// before it leaves the old one.
type participant struct {
	d    *deployment
	room string
	size int
	got  chan news

	mu    sync.Mutex
	link  *link // the one that delivers media
	moves int
	cut   error         // why the link that delivered media ended
	gap   time.Duration // the longest time without media while it moved, since the last look
}

// at returns the pod that sends media to the participant, and why a pod cut the participant off, if one did.
func (p *participant) at() (*pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return nil, p.cut
	}
	return p.link.at, p.cut
}

// look returns how often the participant moved since the previous call, and the longest time without media in that
// period.
func (p *participant) look() (moves int, gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moves, gap = p.moves, p.gap
	p.moves, p.gap = 0, 0
	return moves, gap
}

func (p *pod) String() string {
	if p == nil {
		return "nobody"
	}
	return p.name
}

func (p *participant) stay(ctx context.Context) {
	next := p.connect(nil)
	var last time.Time
	for {
		select {
		case n := <-p.got:
			next, last = p.hear(n, next, last)
		case <-ctx.Done():
			for _, l := range []*link{p.link, next} {
				if l != nil {
					close(l.hangUp)
				}
			}
			return
		}
	}
}

// hear handles news. It returns the link that is being established, and when media last arrived.
func (p *participant) hear(n news, next *link, last time.Time) (*link, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case n.from != p.link && n.from != next: // the participant has hung up this link
	case n.ended:
		var elsewhere *affinity.NotOwnerError
		errors.As(n.err, &elsewhere)
		if n.from == p.link {
			p.link = nil
			if !errors.Is(n.err, cluster.ErrFenced) { // on a busy machine, pods get too little CPU, and the participant reconnects
				p.cut = cmp.Or(n.err, errors.New("the pod ended the connection"))
			}
		}
		if next == nil || n.from == next {
			next = p.connect(elsewhere)
		}
	case n.moved != nil:
		if next == nil {
			next = p.connect(n.moved)
		}
	default: // media
		if next != nil && !last.IsZero() {
			p.gap = max(p.gap, now.Sub(last))
		}
		last = now
		if n.from == next {
			if p.link != nil {
				close(p.link.hangUp)
				p.moves++
			}
			p.link, next = next, nil
		}
	}
	return next, last
}

// connect connects to the pod that is said to host the room. If no pod is said to host it, connect asks any pod.
func (p *participant) connect(told *affinity.NotOwnerError) *link {
	l := &link{hangUp: make(chan struct{})}
	pods := *p.d.pods.Load()
	var id lease.NodeID
	if told != nil {
		id = told.Owner.Node
	} else if a, err := pods[len(p.room)%len(pods)].rooms.Resolve(context.Background(), p.room, affinity.Demand{Size: p.size}); err == nil {
		id = a.Node
	}
	for _, at := range pods {
		if at.name == string(id) {
			l.at = at
			at.serving.Add(1)
			go at.serve(p.room, p.size, l, p.got)
			return l
		}
	}
	go func() { // the pod has ended, or no pod is known, so ask again
		time.Sleep(tick)
		select {
		case p.got <- news{from: l, ended: true}:
		case <-l.hangUp:
		}
	}()
	return l
}

// join starts n participants, each in its own room, who stay until the end of the test.
func (d *deployment) join(ctx context.Context, joined *sync.WaitGroup, n int, name string) []*participant {
	all := make([]*participant, n)
	for i := range all {
		all[i] = &participant{d: d, room: fmt.Sprint(name, "-", i), size: 2 + i%7, got: make(chan news)}
		joined.Go(func() { all[i].stay(ctx) })
	}
	return all
}

// settle waits until each room has exactly one host, which sends the media, and which another pod returns for the room.
func (d *deployment) settle(what string, all []*participant) {
	d.t.Helper()
	pods := *d.pods.Load()
	redistest.Eventually(d.t, what, func() error {
		hosts := make(map[string][]string) // by room
		for _, p := range pods {
			hosted, _ := p.rooms.Hosted()
			for _, h := range hosted {
				hosts[h.Room] = append(hosts[h.Room], p.name)
			}
		}
		for i, p := range all {
			at, cut := p.at()
			if cut != nil {
				d.t.Fatalf("%s was cut off: %v", p.room, cut)
			}
			if at == nil || !slices.Equal(hosts[p.room], []string{at.name}) {
				return fmt.Errorf("%s gets media from %v and is hosted by %v", p.room, at, hosts[p.room])
			}
			other := pods[i%len(pods)]
			if a, err := other.rooms.Resolve(d.t.Context(), p.room, affinity.Demand{}); err != nil || string(a.Node) != at.name {
				return fmt.Errorf("%s gets media from %v, and %s names %v, %w", p.room, at, other.name, a, err)
			}
		}
		return nil
	})
}

// gaps logs how long participants got no media while they moved, and returns how many participants moved.
func (d *deployment) gaps(what string, all []*participant) (moved int) {
	d.t.Helper()
	var gaps []time.Duration
	for _, p := range all {
		if n, gap := p.look(); n > 0 {
			gaps = append(gaps, gap)
		}
	}
	if slices.Sort(gaps); len(gaps) > 0 {
		at := func(percent int) time.Duration { return gaps[(len(gaps)-1)*percent/100].Round(time.Millisecond) }
		d.t.Logf("%s: %d of %d rooms moved; longest gap of each, with media every %v: p50 %v, p95 %v, max %v",
			what, len(gaps), len(all), tick, at(50), at(95), at(100))
	}
	return len(gaps)
}

// A Deployment of ten pods with 300 rooms shrinks to four and grows to ten again. The pods with the lowest load are
// deleted, each room always has a host, and no participant is cut off.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := newServer(t)
	d := &deployment{t: t, s: s, api: s.over(t), redis: redistest.Start(t).URL()}
	d.pods.Store(new([]*pod))
	d.grow("app-0", "app-1", "app-2", "app-3", "app-4", "app-5", "app-6", "app-7", "app-8", "app-9")

	var joined sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer joined.Wait()
	defer leave()
	all := d.join(ctx, &joined, 300, "room")
	d.settle("300 rooms on ten pods", all)

	loads := make(map[string]int32)
	for _, p := range *d.pods.Load() {
		_, units := p.rooms.Hosted()
		loads[p.name] = int32(units)
	}
	gone := d.shrink(4)
	d.settle("300 rooms on four pods", all)
	for _, p := range gone {
		for _, q := range *d.pods.Load() {
			if loads[p.name] > loads[q.name] && differs(loads[p.name], loads[q.name]) {
				t.Errorf("%s was deleted with a load of %d, and not %s with %d", p.name, loads[p.name], q.name, loads[q.name])
			}
		}
	}
	if d.gaps("10 to 4 pods", all) == 0 {
		t.Error("no room moved")
	}

	d.grow("app-10", "app-11", "app-12", "app-13", "app-14", "app-15")
	all = append(all, d.join(ctx, &joined, 100, "later")...)
	d.settle("400 rooms on ten pods", all)
	if n := d.gaps("4 to 10 pods", all); n > 0 {
		t.Errorf("%d rooms moved although no pod was deleted", n)
	}
	for _, p := range (*d.pods.Load())[4:] {
		if hosted, _ := p.rooms.Hosted(); len(hosted) == 0 {
			t.Errorf("%s has no room", p.name)
		}
	}
}
