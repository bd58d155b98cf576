package signalling

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/sse"
)

const (
	defaultKeepAlive = 15 * time.Second
	sendTime         = 10 * time.Second // for one event
)

// Follow streams the location of a room as Server-Sent Events. Follow sends the current node of the room and
// then each new node, like affinity.Resolver.Follow. Each event is a message without an id. In a browser,
// pass the data of each event to the function follow of reconnect.mjs. The stream does not pin the room, so a
// room that clients only follow may have no node.
//
// After keepAlive without an event (default 15 s), Follow sends an SSE comment. If a client does not read an
// event within 10 s, Follow closes the connection. Each stream needs one goroutine in addition to the
// request's goroutine. The stream ends when the resolver is closed.
func Follow(rooms *affinity.Resolver, keepAlive time.Duration) http.Handler {
	if keepAlive <= 0 {
		keepAlive = defaultKeepAlive
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		room := r.PathValue("room")
		w.Header().Set("Cache-Control", "no-store")
		if err := affinity.CheckName(room); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := sse.New(w, sendTime)
		if r.Method == http.MethodHead {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		send(s, directives(ctx, rooms, room), keepAlive, ctx.Done())
		s.End()
	})
}

// directives returns a channel with the directives of a room. The channel is closed after the last directive.
// While the client is reading an event, a later directive replaces earlier directives that have not been
// sent.
func directives(ctx context.Context, rooms *affinity.Resolver, room string) <-chan reconnect.Directive {
	found := make(chan reconnect.Directive)
	go func() {
		defer close(found)
		for d := range rooms.Follow(ctx, room) {
			select {
			case found <- d:
			case <-ctx.Done():
				return
			}
		}
	}()
	return found
}

// send sends directives until the channel is closed, the client disconnects, or the client stops reading.
func send(s *sse.Stream, directives <-chan reconnect.Directive, keepAlive time.Duration, gone <-chan struct{}) {
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	err := s.Send(nil) // send the headers, because the first directive may be late
	for err == nil {
		select {
		case d, ok := <-directives:
			if !ok {
				return
			}
			data, _ := json.Marshal(d) // cannot fail: strings and a number
			err = s.Send(slices.Concat([]byte("data: "), data, []byte("\n\n")))
			quiet.Reset(keepAlive)
		case <-quiet.C:
			err = s.Send([]byte(sse.KeepAlive))
		case <-gone:
			return
		}
	}
}
