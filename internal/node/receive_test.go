package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// outsider starts a node that the network does not know, and returns the node and its full state.
func (w *network) outsider(id string) (*node.Node, []byte) {
	n := w.start(id, 1)
	n.Leases().Establish()
	return n, n.Sync(w.now)
}

// challenges returns how many challenges a node sends to an address while time passes. Questions to members do not
// count.
func (w *network) challenges(id, to string, within time.Duration) (count int) {
	w.sent = func(from string, p node.Packet) {
		question := w.nodes[id].Leases().Question(w.now, 7).Challenge
		if m, err := lease.Decode(p.Bytes); err == nil && from == id && p.To == to && m.Challenge != 0 && m.Challenge != question {
			count++
		}
	}
	w.run(within)
	w.sent = nil
	return count
}

// An unauthenticated peer is challenged a few times. Its messages count as soon as it answers. If it does not answer,
// they are dropped after a while.
func TestConfirm(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := newNetwork(t, nil, "a")
		a := w.nodes["a"]
		n, message := w.outsider("n")
		a.Receive(w.now, message)
		if a.Leases().AddrOf(n.Handle()) != "" {
			t.Fatal("the message of an unauthenticated peer counts")
		}
		if answers {
			a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, a.Leases().Challenge(w.now, 7))))
		}
		if live := a.Leases().AddrOf(n.Handle()) != ""; live != answers {
			t.Errorf("it answers: %v, it is live: %v", answers, live)
		}
		want := map[bool]int{true: 1, false: 6}[answers] // the first challenge waits to be sent
		if got := w.challenges("a", "n", node.ConfirmTime+100*time.Millisecond); got != want || waits(a) {
			t.Errorf("it answers: %v, %d challenges, want %d; messages wait: %v", answers, got, want, waits(a))
		}
	}
}

// When a sender answers the challenge of a stream, its packets count. Its full state has to wait until the sender
// answers the challenge of a packet.
func TestConfirmOverStream(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	n, message := w.outsider("n")
	a.Receive(w.now, message)
	a.Merge(w.now, message)
	a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, &lease.Message{Challenge: a.Leases().StreamNonce(w.now, 7)})))
	if senders, size := a.Waiting(); a.Leases().AddrOf(n.Handle()) == "" || senders != 1 || size != len(message) {
		t.Fatalf("%d senders wait, with %d bytes", senders, size)
	}
	a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, a.Leases().Challenge(w.now, 7))))
	if waits(a) {
		t.Error("its full state waits for ever")
	}
}

// No matter how many messages of unauthenticated peers arrive, only a limited number of them wait.
func TestWaitingIsBounded(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	want := 0
	for i := range 2 * node.MaxWaitingSenders {
		_, message := w.outsider(fmt.Sprint("n", i))
		for range 2 * node.MaxWaiting {
			a.Receive(w.now, message)
		}
		if i < node.MaxWaitingSenders {
			want += node.MaxWaiting * len(message)
		}
	}
	if senders, size := a.Waiting(); senders != node.MaxWaitingSenders || size != want {
		t.Errorf("%d senders wait, with %d bytes, want %d", senders, size, want)
	}
	w.run(node.ConfirmTime + 10*time.Millisecond)
	if waits(a) {
		t.Error("messages wait for ever")
	}
}

// The total size of waiting messages is limited, and a full state displaces waiting packets.
func TestWaitingBytes(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	long := func(n *node.Node) []byte {
		m := n.Leases().Sync(w.now)
		for i := range lease.MaxMessageBytes / 2200 { // each record has somewhat more than 800 bytes
			m.Records = append(m.Records, &lease.Record{
				Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("r", i)), Incarnation: 1, Labels: manyLabels(800)}, Version: 1,
			})
		}
		return lease.Encode(m)
	}
	var message []byte
	for i := range 3 {
		n, _ := w.outsider(fmt.Sprint("n", i))
		message = long(n)
		a.Receive(w.now, message)
	}
	if _, size := a.Waiting(); size != 2*len(message) || 3*len(message) <= lease.MaxMessageBytes {
		t.Fatalf("%d bytes wait, of three messages of %d", size, len(message))
	}
	n, _ := w.outsider("n3")
	a.Merge(w.now, long(n))
	if _, size := a.Waiting(); size > lease.MaxMessageBytes {
		t.Errorf("with a full state, %d bytes wait", size)
	}
	a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, a.Leases().Challenge(w.now, 7))))
	if a.Leases().AddrOf(n.Handle()) == "" {
		t.Error("the full state had no place")
	}
}

// manyLabels returns labels of at least size bytes.
func manyLabels(size int) map[string]string {
	labels := make(map[string]string)
	for i := 0; size > 0; i++ {
		labels[fmt.Sprint("key-", i)] = strings.Repeat("v", lease.MaxLabelBytes)
		size -= lease.MaxLabelBytes
	}
	return labels
}

// waits reports whether messages wait for an answer to a challenge.
func waits(n *node.Node) bool {
	senders, size := n.Waiting()
	return senders > 0 || size != 0
}

// A node that repeatedly sends its state over streams but answers no packet is listed in StreamsAlone, until it answers
// a packet or has sent no state for a while. The list is limited in length.
func TestStreamsAlone(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	names := func(when string, want int) {
		t.Helper()
		if alone := a.View().StreamsAlone; len(alone) != want || want > 0 && alone["n1"] != "n1" {
			t.Errorf("%s: %v, want %d", when, alone, want)
		}
	}
	const outsiders = node.MaxStreamed + 10
	var nodes []*node.Node
	merge := func() {
		for i := range outsiders {
			if len(nodes) == i {
				n, _ := w.outsider(fmt.Sprint("n", i))
				nodes = append(nodes, n)
			}
			a.Merge(w.now, nodes[i].Sync(w.now))
		}
	}
	merge()
	names("at first", 0)
	w.run(node.ConfirmTime + 10*time.Millisecond)
	merge()
	names("with another state", node.MaxStreamed)
	a.Receive(w.now, lease.Encode(nodes[0].Leases().Echo(w.now, a.Leases().Challenge(w.now, 7))))
	names("when one answers", node.MaxStreamed-1)
	w.run(node.StreamedFor + time.Second)
	names("later", 0)
}

// A node that owns partitions on the other side of a split is not trying to join. So it is not listed, even if only its
// streams get through.
func TestStreamsOfAnotherSide(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	b, _ := w.outsider("b")
	for _, tt := range []struct {
		state lease.State
		alone bool
	}{{lease.Settling, true}, {lease.Active, false}, {lease.Draining, false}, {lease.Settling, true}} {
		for range 2 {
			b.Leases().SetState(tt.state)
			b.Leases().Heartbeat(w.now, 0, 0)
			a.Merge(w.now, b.Sync(w.now))
			w.run(node.ConfirmTime + 10*time.Millisecond)
		}
		if _, alone := a.View().StreamsAlone["b"]; alone != tt.alone {
			t.Errorf("named while it is %v: %v", tt.state, alone)
		}
	}
}

// If unauthenticated peers name many addresses of the same host, the node sends this host hardly more challenges than
// it has received messages from these peers.
func TestChallengesToOneHost(t *testing.T) {
	w := newNetwork(t, nil, "a")
	out := make(map[string]int)
	w.sent = func(from string, p node.Packet) {
		if m, err := lease.Decode(p.Bytes); err == nil && from == "a" && m.Challenge != 0 {
			host, _, _ := strings.Cut(p.To, ":")
			out[host]++
		}
	}
	const crowd = 100
	for i := range crowd {
		for _, host := range []string{"203.0.113.9", fmt.Sprint("203.0.113.", 10+i)} {
			id := fmt.Sprint(host, ":", 1000+i)
			_, message := w.outsider(id)
			w.stuck[id] = true
			w.nodes["a"].Receive(w.now, message)
		}
	}
	w.run(node.ConfirmTime + 10*time.Millisecond)
	most := crowd + 5*node.MaxReminded
	if one := out["203.0.113.9"]; one < crowd || one > most {
		t.Errorf("%d challenges to one host, of %d senders", one, crowd)
	}
	if another := out["203.0.113.10"]; another != 6 {
		t.Errorf("%d challenges to a host of its own, want 6", another)
	}
}
