package simnet_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/roost-cluster/roost/internal/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// listen attaches nodes 1 to count and shuts them down when the test ends.
func listen(t *testing.T, n *simnet.Network, count int) []*simnet.Transport {
	t.Helper()
	nodes := make([]*simnet.Transport, count)
	for i := range nodes {
		nodes[i] = listenAt(t, n, addr(i+1))
	}
	return nodes
}

func listenAt(t *testing.T, n *simnet.Network, at string) *simnet.Transport {
	t.Helper()
	tr, err := n.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Shutdown() })
	return tr
}

func write(t *testing.T, from, to *simnet.Transport, text string) {
	t.Helper()
	if _, err := from.WriteTo([]byte(text), to.Addr()); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
}

// waitArrived waits until no packet is in flight, for a minute at most.
func waitArrived() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// drain returns the packets that have arrived and were not read.
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

func wantPackets(t *testing.T, tr *simnet.Transport, want ...string) {
	t.Helper()
	if got := drain(tr); !slices.Equal(got, want) {
		t.Errorf("%s received %q, want %q", tr.Addr(), got, want)
	}
}

// wantBalance checks that no packet is unaccounted for.
func wantBalance(t interface {
	Helper()
	Errorf(string, ...any)
}, n *simnet.Network,
) {
	t.Helper()
	s := n.Stats()
	if s.PacketsSent != s.PacketsDelivered+s.Dropped.Total()+s.InFlight {
		t.Errorf("sent is not delivered + dropped + in flight: %+v", s)
	}
}
