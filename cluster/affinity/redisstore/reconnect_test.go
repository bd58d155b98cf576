package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/internal/redistest"
)

// No answer over a new connection comes before the notification that the previous one was lost: what the
// server forgot in between would pass for a change of another node.
func TestLossIsNotifiedBeforeTheNextAnswer(t *testing.T) {
	server, s := started(t)
	notified := listen(s)
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	const losses, readers = 300, 32
	for i := range losses {
		redistest.Eventually(t, "a pin", func() error { return s.Swap(ctx, first("room", node("n", 1)))[0].Err })
		notified.reset()
		var early atomic.Int32
		for range readers {
			reading.Go(func() {
				for ctx.Err() == nil {
					r := s.Swap(ctx, read("room"))[0]
					if r.Err == nil && r.Pin.Incarnation != node("n", 1) {
						if notified.have("") != nil {
							early.Add(1)
						}
						return
					}
				}
			})
		}
		// In one transaction, so that the lost connection hears of no change.
		answers := other.DoMulti(ctx, other.B().Multi().Build(), other.B().ClientKill().TypeNormal().SkipmeYes().Build(),
			other.B().Del().Key(s.keys.pin(17, "room")).Build(), other.B().Exec().Build())
		if done, err := answers[3].AsIntSlice(); err != nil || done[0] < 1 || done[1] != 1 {
			t.Fatalf("the server killed and deleted %d, %v", done, err)
		}
		reading.Wait()
		if n := early.Load(); n > 0 || ctx.Err() != nil {
			t.Fatalf("loss %d: %d readers heard that the pin is gone before the loss was notified (%v)", i+1, n, ctx.Err())
		}
	}
}

// A lost connection may have cost data, also for a store that is not notified of changes.
func TestLossIsNotified(t *testing.T) {
	for _, query := range []string{"", "?client_cache=0"} {
		server := redistest.Start(t)
		s := ready(t, Options{URL: server.URL() + query})
		notified := listen(s)
		redistest.Eventually(t, "a pin", func() error { return s.Swap(t.Context(), first("room", node("n", 1)))[0].Err })
		notified.reset()
		server.Do("CLIENT", "KILL", "TYPE", "normal")
		redistest.Eventually(t, "the loss, with "+server.URL()+query, func() error { return notified.have("") })
	}
}

// sequence is a connection that records its calls.
type sequence struct {
	net.Conn
	answer string
	calls  []string
}

func (s *sequence) Read(b []byte) (int, error) { return copy(b, s.answer), nil }

func (s *sequence) Close() error {
	s.calls = append(s.calls, "closed")
	return nil
}

// A connection announces its loss once: before it closes, or before the next one to its address is there. One over
// which no server has answered, or one that was refused, does not.
func TestAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		answer, next string // next is where another connection is opened in between
		want         []string
	}{
		"answered":       {"%7\r\n", "", []string{"lost", "closed", "closed"}},
		"never answered": {"", "", []string{"closed", "closed"}},
		"refused":        {"-WRONGPASS\r\n", "", []string{"closed", "closed"}},
		"next":           {"%7\r\n", "a", []string{"lost", "next", "closed", "closed"}},
		"next elsewhere": {"%7\r\n", "b", []string{"next", "lost", "closed", "closed"}},
	} {
		s := &sequence{answer: c.answer}
		dial := newConnections(func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s, nil },
			func() { s.calls = append(s.calls, "lost") }).open
		conn, err := dial(t.Context(), "a", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _ = conn.Read(make([]byte, 9))
			s.answer = "-ERR later\r\n"
		}
		if c.next != "" {
			if _, err := dial(t.Context(), c.next, nil, nil); err != nil {
				t.Fatal(err)
			}
			s.calls = append(s.calls, "next")
		}
		_, _ = conn.Close(), conn.Close()
		if !slices.Equal(s.calls, c.want) {
			t.Errorf("%s: %q, want %q", name, s.calls, c.want)
		}
	}
}
