package clusterhttp

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/internal/sse"
	"github.com/roost-cluster/roost/internal/tablewire"
)

// leastKeepAlive is the shortest time between two comments that a routing client can request.
const leastKeepAlive = 100 * time.Millisecond

// streamTable streams the table and the members until the client disconnects or the agent or the server
// stops.
func (a *api) streamTable(w http.ResponseWriter, r *http.Request) {
	keepAlive, p := durationOf(r, "keep_alive", a.keepAlive, leastKeepAlive, time.Minute)
	if p != nil {
		p.write(w)
		return
	}
	leave, p := a.enter(w, r)
	if p != nil {
		p.write(w)
		return
	}
	defer leave()
	ring, p := a.ringOf(r)
	if p == nil {
		p = a.stalled()
	}
	if p != nil {
		p.write(w)
		return
	}
	s := sse.New(w, a.sendTime)
	if r.Method == http.MethodHead {
		return
	}
	defer ring.tables.enter()()
	err := s.Send(nil) // send the headers now, because the first update may take a while
	if err == nil {
		err = a.sendTables(r.Context(), &ring.tables, s, keepAlive)
	}
	s.End()
	if err != nil {
		a.log.Info("routing client dropped", "remote", r.RemoteAddr, "err", err)
	}
}

func (a *api) sendTables(ctx context.Context, t *tables, s *sse.Stream, keepAlive time.Duration) error {
	stop, _ := ctx.Value(stopKey{}).(<-chan struct{})
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	var sent *tablewire.State
	for {
		state, next := t.latest.Get()
		if event := t.updates.event(sent, *state); len(event) > 0 {
			if err := s.Send(event); err != nil {
				return err
			}
			quiet.Reset(keepAlive)
		}
		sent = *state
		select {
		case <-next:
		case <-quiet.C:
			if p := a.stalled(); p != nil { // a comment would tell the client that its table is current
				return p
			}
			if err := s.Send([]byte(sse.KeepAlive)); err != nil {
				return err
			}
		case <-a.agent.Done():
			return nil
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		}
	}
}

// routingScript serves routing.mjs.
func routingScript(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	_, _ = w.Write(routing.JavaScript()) // an error means that the client disconnected
}

// tables has the data that is sent to the routing clients of a ring. While at least one routing client is
// connected, tables watches the ring.
type tables struct {
	of      source
	cluster string
	ended   <-chan struct{}                // closed when the agent stops
	latest  latest.Value[*tablewire.State] // nil: the ring has had no table yet
	updates *journal[tablewire.State]

	mu      sync.Mutex
	clients int
	stop    context.CancelFunc
}

// enter registers a routing client until done is called. The first client starts the goroutine that watches
// the ring.
func (t *tables) enter() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clients++; t.clients == 1 {
		ctx, stop := context.WithCancel(context.Background())
		t.stop = stop
		t.latest.Set(nil) // the value from an earlier watch may be old
		t.show(t.of.Snapshot())
		go t.watch(ctx)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.clients--; t.clients == 0 {
			t.stop()
		}
	}
}

func (t *tables) watch(ctx context.Context) {
	for {
		s, replaced := t.of.Latest()
		t.mu.Lock()
		if ctx.Err() == nil {
			t.show(s)
		}
		t.mu.Unlock()
		select {
		case <-replaced:
		case <-t.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// show sets the latest state from a snapshot, if the snapshot has changes for routing clients.
func (t *tables) show(s *cluster.Snapshot) {
	old, _ := t.latest.Get()
	if state := stateOf(*old, t.cluster, s); state != nil && state != *old {
		t.latest.Set(state)
	}
}

// stateOf returns the state for routing clients. If nothing has changed, stateOf returns old. A stalled loop
// does not make the state stale, because the loop may continue without a new snapshot. Instead, a stalled
// loop ends the streams.
func stateOf(old *tablewire.State, name string, s *cluster.Snapshot) *tablewire.State {
	next := tablewire.State{Cluster: name, Version: s.Version(), Table: s.Table, Stale: s.Stale(), Members: membersOf(old, s.Members)}
	if s.Table == nil { // before the first table, or after the agent has stopped
		return old
	}
	for p, m := range s.Runners() {
		next.Running = append(next.Running, tablewire.Running{Partition: p, Node: m.ID})
	}
	slices.SortFunc(next.Running, func(a, b tablewire.Running) int { return cmp.Compare(a.Partition, b.Partition) })
	if old != nil && old.Table == next.Table && old.Stale == next.Stale &&
		slices.Equal(old.Members, next.Members) && slices.Equal(old.Running, next.Running) {
		return old
	}
	return &next
}

// membersOf returns the members in the form for routing clients. Members that have not changed are reused
// from old.
func membersOf(old *tablewire.State, members []*cluster.Member) []*tablewire.Member {
	var known []*tablewire.Member
	if old != nil {
		known = old.Members
	}
	all := make([]*tablewire.Member, len(members))
	for i, m := range members {
		for len(known) > 0 && known[0].ID < m.ID {
			known = known[1:]
		}
		next := tablewire.Member{
			Profile: m.Profile, State: m.State,
		}
		if len(known) > 0 && known[0].Equal(&next) {
			all[i] = known[0]
		} else {
			changed := next
			all[i] = &changed
		}
	}
	return all
}
