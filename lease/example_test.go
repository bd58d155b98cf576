package lease_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

var params = lease.Params{TTL: 6 * time.Second, MaxSkew: 5 * time.Second}

func node(now time.Time, id lease.NodeID) *lease.Set {
	s := lease.NewSet(now, lease.Record{
		Profile: lease.Profile{ID: id, Incarnation: uint64(now.UnixNano()), Addr: string(id) + ":7946", Weight: 1},
	}, params)
	s.Establish()
	s.SetState(lease.Active)
	s.Heartbeat(now, 0, 0)
	return s
}

// meet makes two nodes challenge each other. Before that, a node ignores the other node's messages, because they could
// be replayed recordings. In a real program, the number must be random.
func meet(now time.Time, a, b *lease.Set) {
	for _, by := range []struct{ from, to *lease.Set }{{a, b}, {b, a}} {
		challenge := by.from.Challenge(now, rand.Uint64()|1)
		by.to.Apply(now, challenge)
		by.from.Apply(now, by.to.Echo(now, challenge))
	}
}

func members(s *lease.Set) string {
	var all []string
	for _, m := range s.View().Members {
		all = append(all, fmt.Sprint(m.ID, " ", m.State))
	}
	return strings.Join(all, ", ")
}

// Two nodes gossip. One of them stops sending, and its lease expires.
func ExampleSet_Apply() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	a, b := node(now, "a"), node(now, "b")
	meet(now, a, b)

	// Each node sends a gossip message. This example needs no network.
	for _, hop := range []struct{ from, to *lease.Set }{{a, b}, {b, a}} {
		wire := lease.Encode(hop.from.Compose(now, 1400, 1)[0])
		m, err := lease.Decode(wire)
		if err != nil {
			fmt.Println(err)
			return
		}
		effect := hop.to.Apply(now, m)
		fmt.Println("changed:", effect.Changed)
	}
	fmt.Println(members(a))

	at, _ := a.NextDeadline()
	fmt.Println("without a heartbeat of b, look again after", at.Sub(now))
	fmt.Println("changed:", a.Expire(at))
	fmt.Println(members(a))
	// Output:
	// changed: true
	// changed: true
	// a active, b active
	// without a heartbeat of b, look again after 6.001s
	// changed: true
	// a active
}

// A node that joins receives the whole live set in one full sync.
func ExampleNewSet() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	seed, c := node(now, "seed"), node(now, "c")
	for _, id := range []lease.NodeID{"a", "b"} {
		n := node(now, id)
		meet(now, seed, n)
		seed.Apply(now, n.Sync(now))
	}
	meet(now, seed, c)
	c.Apply(now, seed.Sync(now))
	fmt.Println(members(c))
	// Output:
	// a active, b active, c active, seed active
}

// A draining node announces its state in a heartbeat. All later heartbeats repeat the state.
func ExampleSet_SetState() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	a, b := node(now, "a"), node(now, "b")
	meet(now, a, b)
	b.Apply(now, a.Sync(now))

	a.SetState(lease.Draining)
	a.Heartbeat(now, 0, 0)
	b.Apply(now, a.Compose(now, 1400, 1)[0])
	fmt.Println(members(b))
	// Output:
	// a draining, b active
}

// A node that changes its weight changes its record and sends a heartbeat immediately. A node that missed the record
// sees the new version in the heartbeat, and requests the record.
func ExampleSet_Update() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	a, b := node(now, "a"), node(now, "b")
	meet(now, a, b)
	b.Apply(now, a.Sync(now))
	a.Apply(now, b.Sync(now))

	a.Update(func(r *lease.Record) { r.Weight = 3 })
	a.Heartbeat(now, 0, 0)
	m := a.Compose(now, 1400, 1)[0]
	m.Records = nil // pretend that the record did not fit
	for _, request := range b.Replies(now, m, b.Apply(now, m), 1400) {
		fmt.Println(len(request.PullRecords), "record to pull")
		for _, answer := range a.Replies(now, request.Message, a.Apply(now, request.Message), 1400) {
			b.Apply(now, answer.Message)
		}
	}
	fmt.Println("weight", b.View().Members[0].Weight)
	// Output:
	// 1 record to pull
	// weight 3
}

// Decode returns different errors for a message of an unknown version and for a malformed message.
func ExampleDecode() {
	_, err := lease.Decode([]byte{0x92, 9, 1}) // in MessagePack, an array of two integers
	fmt.Println(err)
	_, err = lease.Decode([]byte{0x92, 1, 1})
	fmt.Println(err)
	// Output:
	// lease: message of an unknown wire version: 9, this program reads 1 to 1
	// lease: malformed message: the head is too short
}
