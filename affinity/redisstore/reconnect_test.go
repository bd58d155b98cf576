package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/internal/redistest"
)

// No answer over a new connection comes before the notification that the former one was lost: what the
// server forgot in between would pass for a change of another node.
func TestLossIsNotifiedBeforeTheNextAnswer(t *testing.T) { // S0.1, S1.3
	server, s := started(t)
	notified := listen(s)
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	forget := func() { // at once, so that the lost connection hears of no change
		for _, r := range other.DoMulti(t.Context(), other.B().Multi().Build(), other.B().ClientKill().TypeNormal().SkipmeYes().Build(),
			other.B().Del().Key(s.keys.pin(17, "room")).Build(), other.B().Exec().Build()) {
			if r.Error() != nil {
				t.Fatal(r.Error())
			}
		}
	}
	const losses, readers = 300, 32
	for i := range losses {
		redistest.Eventually(t, "a pin", func() error { return s.Swap(t.Context(), first("room", node("n", 1)))[0].Err })
		notified.reset()
		var early atomic.Int32
		var reading sync.WaitGroup
		for range readers {
			reading.Go(func() {
				for {
					r := s.Swap(t.Context(), read("room"))[0]
					if r.Err == nil && r.Pin.Incarnation != node("n", 1) {
						break
					}
				}
				if len(notified.all()) == 0 {
					early.Add(1)
				}
			})
		}
		forget()
		reading.Wait()
		if n := early.Load(); n > 0 {
			t.Fatalf("loss %d: %d readers heard that the pin is gone before the loss was notified", i+1, n)
		}
	}
}

// sequence is a connection that records its calls.
type sequence struct {
	net.Conn
	calls []string
}

func (s *sequence) Read([]byte) (int, error) { return 1, nil }

func (s *sequence) Close() error {
	s.calls = append(s.calls, "closed")
	return nil
}

// A connection announces its end once, and before it closes; one without any answer does not.
func TestAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		answered bool
		want     []string
	}{
		"answered":       {true, []string{"lost", "closed", "closed"}},
		"never answered": {false, []string{"closed", "closed"}},
	} {
		var s sequence
		dial := announced(func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return &s, nil },
			func() { s.calls = append(s.calls, "lost") })
		conn, err := dial(t.Context(), "", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.answered {
			_, _ = conn.Read(make([]byte, 1))
		}
		_, _ = conn.Close(), conn.Close()
		if !slices.Equal(s.calls, c.want) {
			t.Errorf("%s: %q, want %q", name, s.calls, c.want)
		}
	}
}
