package clusterhttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/signalling"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/sse"
)

// stopKey is the context key of a channel that the server closes when it shuts down. The channel makes the
// streams end, because Shutdown would otherwise wait for them. See NewServer.
type stopKey struct{}

// lastEventID is the header with which a client resumes a stream.
const lastEventID = "Last-Event-ID"

// events streams changes until the client disconnects or the agent or the server stops.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	leave, p := a.enter(w, r)
	if p != nil {
		p.write(w)
		return
	}
	defer leave()
	ring, p := a.ringOf(r)
	if p != nil {
		p.write(w)
		return
	}
	s := stream{Stream: sse.New(w, a.sendTime), ring: ring}
	if r.Method == http.MethodHead {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if ring == a.whole { // rooms do not belong to scopes
		// Subscribe before the client sees that the stream is open. The client then resolves its rooms, and
		// must not miss a move after that.
		s.moves = movesOf(ctx, a.rooms)
	}
	if err := s.Send(nil); err != nil { // send the headers now, because the first batch may take a while
		internal(err).write(w) // this reaches the client only if the writer cannot flush
		return
	}
	err := s.resume(r.Header.Get(lastEventID))
	if err == nil {
		err = s.run(ctx, a)
	}
	s.End()
	if err != nil {
		a.log.Info("event stream dropped", "remote", r.RemoteAddr, "err", err)
	}
}

// placesWithoutToken returns how many streams clients without a token can open.
func placesWithoutToken(o Options) int {
	if o.Token == "" && o.ReadToken == "" && o.Tokens == nil {
		return o.MaxStreams
	}
	return max(1, o.MaxStreams*3/4)
}

// enter reserves a place for a stream. If all places are taken, enter fails. Some places are reserved for
// clients with a token.
func (a *api) enter(w http.ResponseWriter, r *http.Request) (leave func(), _ *Problem) {
	if a.closed() {
		return nil, a.problemOf(cluster.ErrClosed)
	}
	places := []chan struct{}{a.streams}
	if !a.guard.known(r) {
		places = append(places, a.strange)
	}
	leave = func() {}
	for _, place := range places {
		select {
		case place <- struct{}{}:
			others := leave
			leave = func() { <-place; others() }
		default:
			leave()
			return nil, problem(http.StatusServiceUnavailable, CodeBusy, "all %d event streams are taken", cap(place))
		}
	}
	streaming(w)
	return leave, nil
}

// followRoom streams the node of a room until the client disconnects or the resolver, the agent or the server
// stops.
func (a *api) followRoom(w http.ResponseWriter, r *http.Request) {
	_, p := a.roomOf(r)
	if p = cmp.Or(scopeless(r), p); p != nil {
		p.write(w)
		return
	}
	leave, p := a.enter(w, r)
	if p != nil {
		p.write(w)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop, _ := ctx.Value(stopKey{}).(<-chan struct{})
	go func() {
		select {
		case <-stop:
		case <-a.agent.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	signalling.Follow(a.rooms, a.keepAlive).ServeHTTP(w, r.WithContext(ctx))
}

// stream is the event stream of one client. A stream holds at most one event of each type, even if the client
// is slow, because later changes are merged into the next event.
type stream struct {
	*sse.Stream

	ring  *ring
	moves <-chan affinity.MovedBatch
	seen  *events.State // the last state that was sent; nil: no state was sent yet
}

func (s *stream) run(ctx context.Context, a *api) error {
	changes := s.ring.Reader("http")
	defer changes.Close()
	stop, _ := ctx.Value(stopKey{}).(<-chan struct{})
	quiet := time.NewTicker(a.keepAlive)
	defer quiet.Stop()
	for {
		state, next := changes.Latest()
		if event := s.ring.journal.event(s.seen, state); len(event) > 0 {
			if err := s.Send(event); err != nil {
				return err
			}
			quiet.Reset(a.keepAlive)
		}
		s.seen = state
		if next == nil {
			return nil
		}
		select {
		case <-next:
		case b := <-s.moves:
			if err := s.sendMoved(b); err != nil {
				return err
			}
			quiet.Reset(a.keepAlive)
		case <-quiet.C:
			if err := s.Send([]byte(sse.KeepAlive)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		}
	}
}

// resume continues a stream after the event with this id, if the journal still has that event. The journal
// does not record moves of rooms, so a client that sends an id gets a resync.
func (s *stream) resume(id string) error {
	s.seen = s.ring.journal.state(id)
	if id == "" || s.moves == nil {
		return nil
	}
	return s.sendMoved(affinity.MovedBatch{Moved: []affinity.Moved{}, Resync: true})
}

// movesOf returns a channel with the moves of rooms from now on, or nil if rooms is nil. The goroutine of
// movesOf ends when ctx ends or the resolver closes. The channel is never closed, because the stream
// continues after the resolver has closed.
func movesOf(ctx context.Context, rooms *affinity.Resolver) <-chan affinity.MovedBatch {
	if rooms == nil {
		return nil
	}
	batches := rooms.Moves(ctx)
	moves := make(chan affinity.MovedBatch)
	go func() {
		for b := range batches {
			select {
			case moves <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return moves
}

// roomsInEvent is how many rooms an event of type moved can have. With this limit, an event has at most 100
// kB, so that a slow client can read the event in time. Each stream encodes its own moved events.
const roomsInEvent = 128

func (s *stream) sendMoved(b affinity.MovedBatch) error {
	for {
		n := min(roomsInEvent, len(b.Moved))
		data := plain(affinity.MovedBatch{Moved: b.Moved[:n], Resync: b.Resync})
		if err := s.Send(fmt.Appendf(nil, "event: moved\ndata: %s\n\n", data)); err != nil {
			return err
		}
		if b.Moved = b.Moved[n:]; len(b.Moved) == 0 {
			return nil
		}
	}
}
