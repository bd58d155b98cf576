package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/internal/redistest"
)

// After a lost connection, the store notifies of the loss before it returns an answer from a new connection. Otherwise
// a pin that the server lost in between would look like a change by another node.
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
		// A single transaction kills the connections and deletes the pin, so that the store is not notified of the
		// change.
		answers := other.DoMulti(ctx, other.B().Multi().Build(), other.B().ClientKill().TypeNormal().SkipmeYes().Build(),
			other.B().ClientKill().TypePubsub().SkipmeYes().Build(), // also the connection with the subscription
			other.B().Del().Key(names(s).pin(17, "room")).Build(), other.B().Exec().Build())
		if done, err := answers[4].AsIntSlice(); err != nil || done[0]+done[1] < 1 || done[2] != 1 {
			t.Fatalf("the server killed and deleted %d, %v", done, err)
		}
		reading.Wait()
		if n := early.Load(); n > 0 || ctx.Err() != nil {
			t.Fatalf("loss %d: %d readers heard that the pin is gone before the loss was notified (%v)", i+1, n, ctx.Err())
		}
	}
}

// The server may have lost data when a connection is lost, so the store notifies of the loss.
func TestLossIsNotified(t *testing.T) {
	server, s := started(t)
	notified := listen(s)
	swap(t, s, first("room", node("n", 1)))
	notified.reset()
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	redistest.Eventually(t, "the loss", func() error { return notified.have("") })
}
