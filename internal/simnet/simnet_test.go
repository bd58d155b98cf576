package simnet_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/roost-cluster/roost/internal/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// bed is a network with nodes 1 to count in a bubble.
type bed struct {
	*testing.T
	*simnet.Network
	nodes map[int]*simnet.Transport
}

func run(t *testing.T, cfg simnet.Config, count int, test func(b bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newBed(t, cfg, count)) })
}

func newBed(t *testing.T, cfg simnet.Config, count int) bed {
	t.Helper()
	b := bed{t, simnet.New(cfg), map[int]*simnet.Transport{}}
	for i := range count {
		b.listen(i + 1)
	}
	return b
}

// listen attaches node i and shuts it down when the test ends.
func (b bed) listen(i int) {
	b.Helper()
	tr, err := b.Listen(addr(i))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tr.Shutdown() })
	b.nodes[i] = tr
}

func (b bed) send(from, to int, text string) {
	b.Helper()
	if _, err := b.nodes[from].WriteTo([]byte(text), addr(to)); err != nil {
		b.Fatalf("send %q: %v", text, err)
	}
}

// arrived waits until no packet is in flight, but at most for a minute, and returns the packets that node i has not
// read.
func (b bed) arrived(i int) []string {
	time.Sleep(time.Minute)
	synctest.Wait()
	return drain(b.nodes[i])
}

func drain(tr *simnet.Transport) []string {
	texts := []string{}
	for {
		select {
		case p := <-tr.PacketCh():
			texts = append(texts, string(p.Buf))
		default:
			return texts
		}
	}
}

func (b bed) wantPackets(i int, want ...string) {
	b.Helper()
	if got := b.arrived(i); !slices.Equal(got, want) {
		b.Errorf("node %d received %q, want %q", i, got, want)
	}
}

func (b bed) dial(from, to int) net.Conn {
	b.Helper()
	c, err := b.nodes[from].DialTimeout(addr(to), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// connect opens a stream from one node to another, and accepts it there.
func (b bed) connect(from, to int) (near, far net.Conn) {
	b.Helper()
	near = b.dial(from, to)
	return near, <-b.nodes[to].StreamCh()
}

func (b bed) wantError(what string, got, want error) {
	b.Helper()
	if !errors.Is(got, want) {
		b.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantSilence checks that a dial, read or write only ends with its timeout after a second.
func (b bed) wantSilence(what string, call func(deadline time.Time) error) {
	b.Helper()
	start := time.Now()
	err := call(start.Add(time.Second))
	var timeout net.Error
	if took := time.Since(start); !errors.As(err, &timeout) || !timeout.Timeout() || took != time.Second {
		b.Errorf("%s: %v after %v, want a timeout", what, err, took)
	}
}

// dialing and using return calls for wantSilence.
func dialing(tr *simnet.Transport, to int) func(time.Time) error {
	return func(deadline time.Time) error {
		_, err := tr.DialTimeout(addr(to), time.Until(deadline))
		return err
	}
}

func using(c net.Conn, op func([]byte) (int, error)) func(time.Time) error {
	return func(deadline time.Time) error {
		defer c.SetDeadline(time.Time{})
		c.SetDeadline(deadline)
		_, err := op(make([]byte, 1))
		return err
	}
}
