package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// outsider returns a node, and a message of it, that the network does not know.
func (w *network) outsider(id string) (*Node, []byte) {
	n := w.start(id, 1)
	n.set.Establish()
	return n, n.Sync(w.now)
}

// challenges returns how many challenges a node sends to an address within a time, without questions to members.
func (w *network) challenges(id, to string, within time.Duration) (count int) {
	w.sent = func(from string, p Packet) {
		question := w.nodes[id].set.Question(w.now, 7).Challenge
		if m, err := lease.Decode(p.Bytes); err == nil && from == id && p.To == to && m.Challenge != 0 && m.Challenge != question {
			count++
		}
	}
	w.run(within)
	w.sent = nil
	return count
}

// An unauthenticated peer is challenged a few times. Its messages count when it answers, and are
// forgotten after a while.
func TestConfirm(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := newNetwork(t, nil, "a")
		a := w.nodes["a"]
		n, message := w.outsider("n")
		a.Receive(w.now, message)
		if a.set.AddrOf(n.set.Handle()) != "" {
			t.Fatal("the message of an unauthenticated peer counts")
		}
		if answers {
			a.Receive(w.now, lease.Encode(n.set.Echo(w.now, a.set.Challenge(w.now, 7))))
		}
		if live := a.set.AddrOf(n.set.Handle()) != ""; live != answers {
			t.Errorf("it answers: %v, it is live: %v", answers, live)
		}
		want := map[bool]int{true: 1, false: 6}[answers] // the first waits to be sent
		if got := w.challenges("a", "n", confirmTime+100*time.Millisecond); got != want || len(a.waiting.senders) > 0 || a.waiting.bytes != 0 {
			t.Errorf("it answers: %v, %d challenges, want %d; %d wait with %d bytes", answers, got, want, len(a.waiting.senders), a.waiting.bytes)
		}
	}
}

// The answer to a stream is the reason for the packets of its sender to count, in their order.
// The full state waits for the answer to a packet.
func TestConfirmOverStream(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	n, message := w.outsider("n")
	a.Receive(w.now, message)
	a.Merge(w.now, message)
	a.Receive(w.now, lease.Encode(n.set.Echo(w.now, &lease.Message{Challenge: a.set.StreamNonce(w.now, 7)})))
	s := a.waiting.sender(n.set.Handle())
	if a.set.AddrOf(n.set.Handle()) == "" || s == nil || len(s.messages) != 1 || !s.messages[0].state || a.waiting.bytes != len(message) {
		t.Fatalf("%+v waits, with %d bytes", s, a.waiting.bytes)
	}
	a.Receive(w.now, lease.Encode(n.set.Echo(w.now, a.set.Challenge(w.now, 7))))
	if len(a.waiting.senders) > 0 || a.waiting.bytes != 0 {
		t.Errorf("%d wait, with %d bytes", len(a.waiting.senders), a.waiting.bytes)
	}
}

// However many messages of unauthenticated peers arrive, few wait.
func TestWaitingIsBounded(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	for i := range 2 * maxWaitingSenders {
		_, message := w.outsider(fmt.Sprint("n", i))
		for range 2 * maxWaiting {
			a.Receive(w.now, message)
		}
	}
	waiting := 0
	for _, u := range a.waiting.senders {
		waiting = max(waiting, len(u.messages))
	}
	if len(a.waiting.senders) != maxWaitingSenders || waiting != maxWaiting {
		t.Errorf("%d senders wait, with up to %d messages", len(a.waiting.senders), waiting)
	}
	w.run(confirmTime + 10*time.Millisecond)
	for i := range lease.Handle(3) {
		a.waiting.confirm(w.now, 1+i, "n", pendingMessage{bytes: make([]byte, lease.MaxMessageBytes/2)})
	}
	if a.waiting.bytes > lease.MaxMessageBytes {
		t.Errorf("%d bytes wait", a.waiting.bytes)
	}
	a.waiting.confirm(w.now, 4, "n", pendingMessage{make([]byte, lease.MaxMessageBytes/2), true})
	if s := a.waiting.sender(4); s == nil || len(s.messages) != 1 || a.waiting.bytes > lease.MaxMessageBytes {
		t.Errorf("a full state has no place: %d bytes wait", a.waiting.bytes)
	}
	w.run(confirmTime + 10*time.Millisecond)
	if len(a.waiting.senders) > 0 || a.waiting.bytes != 0 {
		t.Errorf("%d wait for ever, with %d bytes", len(a.waiting.senders), a.waiting.bytes)
	}
}

// A node that sends its state over streams again and again, and answers no packet, is named: a few at most,
// until one answers, and for a while after the last state.
func TestStreamsAlone(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	names := func(when string, want int) {
		t.Helper()
		if alone := a.View().StreamsAlone; len(alone) != want || want > 0 && alone["n1"] != "n1" {
			t.Errorf("%s: %v, want %d", when, alone, want)
		}
	}
	const outsiders = maxStreamed + 10
	var nodes []*Node
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
	w.run(confirmTime + 10*time.Millisecond)
	merge()
	names("with another state", maxStreamed)
	a.Receive(w.now, lease.Encode(nodes[0].set.Echo(w.now, a.set.Challenge(w.now, 7))))
	names("when one answers", maxStreamed-1)
	w.run(streamedFor + time.Second)
	names("later", 0)
}

// A node that owns on the other side of a split is not one that tries to join, also if only streams get through.
func TestStreamsOfAnotherSide(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	b, _ := w.outsider("b")
	for _, tt := range []struct {
		state lease.State
		alone bool
	}{{lease.Settling, true}, {lease.Active, false}, {lease.Draining, false}, {lease.Settling, true}} {
		for range 2 {
			b.set.SetState(tt.state)
			b.set.Heartbeat(w.now, 0, 0)
			a.Merge(w.now, b.Sync(w.now))
			w.run(confirmTime + 10*time.Millisecond)
		}
		if _, alone := a.View().StreamsAlone["b"]; alone != tt.alone {
			t.Errorf("named while it is %v: %v", tt.state, alone)
		}
	}
}

// Unauthenticated peers that name addresses of one host draw little more to it than they send.
func TestChallengesToOneHost(t *testing.T) {
	w := newNetwork(t, nil, "a")
	out := make(map[string]int)
	w.sent = func(from string, p Packet) {
		if m, err := lease.Decode(p.Bytes); err == nil && from == "a" && m.Challenge != 0 {
			out[hostOf(p.To)]++
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
	w.run(confirmTime + 10*time.Millisecond)
	most := crowd + 5*maxReminded
	if one := out["203.0.113.9"]; one < crowd || one > most {
		t.Errorf("%d challenges to one host, of %d senders", one, crowd)
	}
	if another := out["203.0.113.10"]; another != 6 {
		t.Errorf("%d challenges to a host of its own, want 6", another)
	}
}
