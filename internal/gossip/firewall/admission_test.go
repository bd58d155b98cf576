package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// distant is a connection from another address.
type distant struct {
	net.Conn
	from string

	mu   sync.Mutex
	got  []byte
	shut bool
}

func (s *distant) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(s.from), 1))
}

func (s *distant) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, b...)
	return len(b), nil
}

func (s *distant) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	return nil
}

func (s *distant) SetWriteDeadline(time.Time) error { return nil }

// ward is an admission in a synctest bubble.
type ward struct {
	*admission
	t       *testing.T
	ctx     context.Context
	evicted atomic.Uint64
}

func inWard(t *testing.T, test func(w *ward)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &ward{t: t, ctx: t.Context()}
		w.admission = newAdmission(&w.evicted)
		test(w)
	})
}

func (w *ward) enter(from string) *place {
	w.t.Helper()
	p := w.admission.enter(w.ctx, &distant{from: from}, time.Minute)
	if p == nil {
		w.t.Fatal("no place")
	}
	p.begin()
	time.Sleep(time.Millisecond)
	return p
}

// moves makes a stream wait for budget. The result of the wait arrives on the returned channel.
func (w *ward) moves(p *place, to *pool, bytes int) <-chan error {
	end := make(chan error, 1)
	go func() { end <- p.move(w.ctx, to, bytes, 0) }()
	synctest.Wait()
	time.Sleep(time.Millisecond)
	return end
}

func (w *ward) granted(what string, want bool, ps ...*place) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range ps {
		if p.granted != want {
			w.t.Errorf("%s: stream %d has a budget: %v", what, i, p.granted)
		}
	}
}

func (w *ward) shut(what string, want bool, ps ...*place) {
	w.t.Helper()
	synctest.Wait()
	for i, p := range ps {
		conn := p.conn.(*distant) //nolint:forcetypeassert // enter made it
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if conn.shut != want || want && !bytes.Equal(conn.got, []byte{Busy}) {
			w.t.Errorf("%s: stream %d is closed: %v, after %v", what, i, conn.shut, conn.got)
		}
	}
}

// When all slots are taken, the longest-waiting stream of the source with the most streams is closed. Streams that have
// proven the key are closed last.
func TestSlots(t *testing.T) {
	inWard(t, func(w *ward) {
		friend := w.enter("10.0.0.1")
		crowd := []*place{w.enter("10.0.0.2")}
		crowd[0].prove()
		for len(w.open) < maxStreams {
			crowd = append(crowd, w.enter("10.0.0.2"))
		}
		w.shut("all fit", false, crowd...)
		w.enter("10.0.0.2")
		w.enter("10.0.0.3")
		w.shut("the two that waited longest", true, crowd[1:3]...)
		w.shut("the others", false, crowd[3:]...)
		w.shut("another source, and a proven one", false, friend, crowd[0])
		if len(w.open) != maxStreams || w.evicted.Load() != 2 {
			t.Errorf("%d streams are open, %d were closed", len(w.open), w.evicted.Load())
		}
		for _, p := range slices.Clone(w.open) {
			p.prove()
		}
		w.enter("10.0.0.3")
		w.shut("if all have shown the key", true, crowd[0])
		for _, p := range slices.Clone(w.open) {
			p.since = time.Time{}
		}
		if late := w.open[7]; w.victim(time.Now()) != nil {
			t.Error("a stream is closed that this node has not begun to read")
		} else if late.begin(); w.victim(time.Now().Add(leastAge)) != late {
			t.Error("a stream that this node reads stays")
		}
	})
}

// Streams that are only waiting for this node, as in a mass start, are not closed to make room. New streams wait
// instead.
func TestCompleteStreamsStay(t *testing.T) {
	inWard(t, func(w *ward) {
		var all []*place
		for len(all) < maxStreams {
			p := w.enter("10.0.0.1")
			w.moves(p, &w.served, 100)
			all = append(all, p)
		}
		came := make(chan *place, 1)
		go func() { came <- w.admission.enter(w.ctx, &distant{from: "10.0.0.2"}, time.Minute) }()
		if synctest.Wait(); len(came) > 0 {
			t.Error("a stream was closed that waits for this node")
		}
		all[9].leave()
		p := <-came
		p.begin()
		if w.evicted.Load() != 0 {
			t.Errorf("%d evicted at the end of one", w.evicted.Load())
		}
		w.moves(p, &w.served, 100)
		go func() { came <- w.admission.enter(w.ctx, &distant{from: "10.0.0.3"}, time.Minute) }()
		<-came // admitted in the end
		w.shut("the one that was served longest", true, all[0])
	})
}

// The source that uses the fewest bytes gets budget first. Among the streams of one source, small messages go first. A
// stream gets all of its bytes in a single grant.
func TestTurns(t *testing.T) {
	inWard(t, func(w *ward) {
		hog := w.enter("10.0.0.1")
		w.moves(hog, &w.toRead, readBudget)
		other := w.enter("10.0.0.9")
		large, small, early := w.enter("10.0.0.1"), w.enter("10.0.0.1"), w.enter("10.0.0.1")
		w.moves(large, &w.toRead, 6<<20)
		w.moves(small, &w.toRead, 1<<20)
		w.moves(early, &w.toRead, 1<<20)
		w.moves(other, &w.toRead, 12<<20)
		hog.leave()
		w.granted("the source without any, then small ones", true, other, small, early)
		w.granted("the budget is exceeded", false, large)
		small.leave()
		early.leave()
		w.granted("the budget is exceeded", false, large)
		other.leave()
		w.granted("the last", true, large)
		if most := w.enter("10.0.0.2"); (<-w.moves(most, &w.served, 1<<30)) != nil || w.served.used != serveBudget {
			t.Error("one that is larger than the budget does not get all of it")
		}
	})
}

// A stream that announces much data but sends nothing is closed when other streams are waiting, and only then.
func TestOverdue(t *testing.T) {
	inWard(t, func(w *ward) {
		silent, busy := w.enter("10.0.0.1"), w.enter("10.0.0.1")
		w.moves(silent, &w.toRead, readBudget/2)
		w.moves(busy, &w.toRead, readBudget/2)
		time.Sleep(10 * time.Second)
		w.shut("nothing else waits", false, silent, busy)
		busy.moved.Store(readBudget / 2 * 3)
		if err := <-w.moves(w.enter("10.0.0.1"), &w.toRead, 1<<20); err != nil {
			t.Error(err)
		}
		w.shut("it sent nothing", true, silent)
		w.shut("it sent much", false, busy)
		if err := silent.move(w.ctx, &w.served, 1, 0); !errors.Is(err, ErrEvicted) {
			t.Errorf("a closed stream goes on: %v", err)
		}
		late := w.enter("10.0.0.2")
		late.until = time.Now().Add(time.Second)
		if err := <-w.moves(late, &w.toRead, readBudget); err == nil {
			t.Error("it waits for ever")
		}
		late.leave()
	})
}

// A stream that is closed before its answer gets the byte Busy, so that the other side does not conclude that this is
// another cluster. Busy is not sent after an answer has begun, and no answer is sent after Busy.
func TestOverdueAnswer(t *testing.T) {
	inWard(t, func(w *ward) {
		queued, answered := w.enter("10.0.0.1"), w.enter("10.0.0.1")
		w.moves(queued, &w.served, serveBudget/2)
		w.moves(answered, &w.served, serveBudget/2)
		answer := &Stream{Conn: answered.conn, firewall: &Firewall{places: w.admission}, place: answered, incoming: true}
		if _, err := answer.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		answered.moved.Store(0)
		time.Sleep(10 * time.Second)
		w.moves(w.enter("10.0.0.1"), &w.served, serveBudget)
		w.shut("it waits for an answer", true, queued)
		if got := answered.conn.(*distant); !got.shut || string(got.got) != "state" { //nolint:forcetypeassert // enter made it
			t.Errorf("closed: %v, after %q", got.shut, got.got)
		}
		answer.Conn, answer.place = queued.conn, queued
		if _, err := answer.Write([]byte("state")); !errors.Is(err, ErrEvicted) {
			t.Errorf("an answer to a closed stream: %v", err)
		}
		if got := queued.conn.(*distant).got; len(bytes.Trim(got, string([]byte{Busy}))) > 0 { //nolint:forcetypeassert // enter made it
			t.Errorf("after its end it got %q", got)
		}
	})
}

// No matter what streams do, the limits hold, and nothing is left of the streams after they have ended.
func TestAdmissionBounds(t *testing.T) {
	for seed := range uint64(20) {
		inWard(t, func(w *ward) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var all sync.WaitGroup
			for range 600 {
				from := fmt.Sprintf("10.0.0.%d", 1+rng.IntN(3)*rng.IntN(4))
				size, slow := rng.IntN(1<<(1+rng.IntN(25))), time.Duration(rng.IntN(1<<(1+rng.IntN(31))))
				time.Sleep(time.Duration(rng.IntN(1 << (1 + rng.IntN(24)))))
				p := w.enter(from)
				all.Go(func() {
					defer p.leave()
					for _, to := range []*pool{&w.toRead, &w.served} {
						if p.move(w.ctx, to, size, size) != nil {
							return
						}
						w.holds()
						select {
						case <-time.After(slow):
						case <-p.gone:
							return
						}
						p.prove()
					}
				})
			}
			all.Wait()
			if len(w.open)+w.toRead.used+w.served.used+len(w.toRead.waiting)+len(w.served.waiting) != 0 {
				t.Errorf("seed %d: something is left: %+v", seed, w.admission)
			}
		})
	}
}

func (w *ward) holds() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range []*pool{&w.toRead, &w.served} {
		used := 0
		for _, p := range w.users(in) {
			if p.pool == in {
				used += p.bytes
			} else {
				used += p.kept
			}
		}
		if used != in.used || used > in.bytes || len(in.granted) > in.most || len(w.open) > maxStreams {
			w.t.Errorf("%d bytes are used of %d, counted as %d, by %d of %d streams", used, in.bytes, in.used, len(in.granted), len(w.open))
		}
	}
}

// Complete messages use the read budget while they wait to be served.
func TestWaitingMessages(t *testing.T) {
	inWard(t, func(w *ward) {
		hog := w.enter("10.0.0.1")
		w.moves(hog, &w.served, serveBudget)
		hog.moved.Store(1 << 30) // it is fast, so it is not overdue
		first, second, third := w.enter("10.0.0.2"), w.enter("10.0.0.2"), w.enter("10.0.0.3")
		for _, p := range []*place{first, second} {
			w.moves(p, &w.toRead, 6<<20)
			go func() { _ = p.move(w.ctx, &w.served, 1<<20, 6<<20) }()
		}
		w.moves(third, &w.toRead, 6<<20)
		w.granted("a third message of 6 MiB beside two that wait", false, third)
		w.holds()
		time.Sleep(2 * time.Second)
		w.shut("complete ones have some time", false, first, second)
		time.Sleep(time.Second)
		w.granted("the first one had its time", true, third)
		w.shut("it goes", true, first)
		hog.leave()
		w.granted("it is served", true, second)
		third.leave()
		w.moves(w.enter("10.0.0.4"), &w.toRead, readBudget)
		w.holds()
		if w.toRead.used != readBudget {
			t.Errorf("%d bytes of %d are used", w.toRead.used, readBudget)
		}
	})
}
