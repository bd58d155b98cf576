package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// key encrypts messages like memberlist does. A nil key does not encrypt.
type key []byte

// newKey makes a key and a file with it.
func newKey(t *testing.T) (k key, file string) {
	t.Helper()
	line := succeeds(t, "keygen")
	k, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return k, secretFile(t, line)
}

const label = "\xf4\x05roost"

// packet returns a packet with a memberlist message.
func (k key) packet(message []byte) []byte {
	if k != nil {
		message = k.seal(message, []byte("roost"))
	}
	return append([]byte(label), message...)
}

// stream returns the bytes that memberlist would send over a connection.
func (k key) stream(message []byte) []byte {
	if k != nil {
		head := binary.BigEndian.AppendUint32([]byte{10}, uint32(29+len(message)))
		message = append(head, k.seal(message, append(slices.Clone(head), "roost"...))...)
	}
	return append([]byte(label), message...)
}

func (k key) gcm() cipher.AEAD {
	block, err := aes.NewCipher(k)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return gcm
}

func (k key) seal(message, data []byte) []byte {
	sealed := make([]byte, 13)
	sealed[0] = 1
	_, _ = crand.Read(sealed[1:])
	return k.gcm().Seal(sealed, sealed[1:], message, data)
}

// open decrypts the answer on a stream.
func (k key) open(t *testing.T, b []byte) []byte {
	t.Helper()
	if k == nil {
		return b
	}
	if len(b) < 34 {
		t.Fatalf("the answer is %q", b)
	}
	plain, err := k.gcm().Open(nil, b[6:18], b[18:], append(slices.Clone(b[:5]), "roost"...))
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// spray sends packets to agent a at a rate per second. A rate of 0 means as fast as this process can.
func (s *scene) spray(ctx context.Context, t *testing.T, rate int, packet func(i int) []byte) {
	t.Helper()
	conn, err := net.Dial("udp", s.a.Gossip)
	if err != nil {
		t.Fatal(err)
	}
	s.wait.Go(func() {
		defer conn.Close()
		began := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := conn.Write(packet(i)); err == nil {
				s.sent.Add(1)
			}
			if ahead := time.Duration(i)*time.Second/time.Duration(max(1, rate)) - time.Since(began); rate > 0 && ahead > time.Millisecond {
				pause(ctx, ahead)
			}
		}
	})
	eventually(t, func() error {
		if s.sent.Load() == 0 {
			return fmt.Errorf("nothing is sent yet")
		}
		return nil
	})
}

// forger sends messages in the name of members.
type forger struct {
	insight
	key key
}

// asB returns a message of member b.
func (f forger) asB() *lease.Message {
	now := time.Now()
	return &lease.Message{Settings: f.settings, From: f.of["b"].Handle(), Stamp: lease.Stamp(now.UnixMilli()), SentAt: now}
}

// kinds contains the kinds of messages that a forger sends as b, by name. Each function returns the i-th message.
func (f forger) kinds() map[string]func(i int) *lease.Message {
	subject := func(i int) *lease.Record { return f.of[[]lease.NodeID{"a", "b"}[i%2]] }
	heartbeat := func(r *lease.Record, at lease.Stamp, state lease.State) lease.Heartbeat {
		return lease.Heartbeat{Handle: r.Handle(), At: at, Renewed: at, State: state, Version: r.Version}
	}
	return map[string]func(i int) *lease.Message{
		"leave messages": func(i int) *lease.Message {
			m := f.asB()
			m.Heartbeats = []lease.Heartbeat{heartbeat(subject(i), m.Stamp, lease.Left)}
			return m
		},
		"records": func(i int) *lease.Message {
			m, r := f.asB(), *subject(i)
			ends := []uint64{0, 1, 1<<62 - 1, 1 << 62, math.MaxUint64}
			if i/2%2 == 0 {
				r.Incarnation = ends[i/4%len(ends)]
			} else {
				r.Version = math.MaxUint32
				m.Heartbeats = []lease.Heartbeat{heartbeat(&r, m.Stamp, lease.Draining)}
			}
			r.Weight, r.Capacity = lease.MaxWeight, math.MaxInt64
			r.RecentReturns, r.FlappingUntil = lease.Stamp(ends[i/4%4]), 1<<53+lease.Stamp(i/20%2)
			m.Records = []*lease.Record{&r}
			return m
		},
		"processes": func(int) *lease.Message { // a later process with the id of agent a
			m, r := f.asB(), *f.of["a"]
			r.Incarnation++
			m.Records = []*lease.Record{&r}
			m.Heartbeats = []lease.Heartbeat{heartbeat(&r, m.Stamp, lease.Active)}
			return m
		},
		"sequences": func(i int) *lease.Message {
			m := f.asB()
			ends := []lease.Stamp{1, m.Stamp, m.Stamp + 1, 1 << 52, 1 << 53, math.MaxInt64, math.MinInt64}
			b := heartbeat(subject(i), ends[i/2%len(ends)], lease.Active)
			b.Version, b.Load, b.Clock, b.Table = math.MaxUint32, math.MaxInt64, math.MaxInt64, rand.Uint32()
			m.Heartbeats = []lease.Heartbeat{b}
			m.Missed = ends[i/2%len(ends)]
			return m
		},
		"failure-reports": func(i int) *lease.Message {
			m := f.asB()
			for _, watcher := range f.of {
				for _, e := range []lease.Evidence{lease.Refused, lease.Silent} {
					m.FailureReports = append(m.FailureReports, lease.FailureReport{
						Subject:  subject(i).Handle(),
						Watcher:  watcher.Handle(),
						At:       m.Stamp,
						Evidence: e,
					})
				}
			}
			return m
		},
		"cordons": func(i int) *lease.Message {
			m := f.asB()
			until := m.Stamp + lease.Stamp(5*time.Second/time.Millisecond)
			for n := range lease.MaxCordons {
				id := lease.NodeID(fmt.Sprint("x", 64*i+n))
				if n < 2 {
					id = lease.NodeID(fmt.Sprint(string(rune('a' + n))))
				}
				m.Cordons = append(m.Cordons, lease.Cordon{ID: id, At: m.Stamp, Until: until, Keep: until, Reason: "x"})
			}
			return m
		},
		"assignments": func(i int) *lease.Message {
			m := f.asB()
			if i%4 < 2 {
				m.Extra = binary.AppendUvarint([]byte{1}, math.MaxUint64-uint64(i)) // a stamp
				m.Extra = binary.BigEndian.AppendUint64(m.Extra, rand.Uint64())
				return m
			}
			versions := []uint64{math.MaxUint64, 1 << 53, 1<<53 + 1, 1 << 52}
			v := versions[i/4%len(versions)]
			m.Extra = []byte{2, 1} // claims that a owns all partitions, since a version in the far future
			for _, n := range []uint64{1024, v, 1, 1} {
				m.Extra = binary.AppendUvarint(m.Extra, n)
			}
			m.Extra = append(m.Extra, 'a')
			for _, n := range []uint64{math.MaxUint64, 1, v, 1, 1, 1} {
				m.Extra = binary.AppendUvarint(m.Extra, n)
			}
			for range 1024 {
				m.Extra = binary.AppendUvarint(append(m.Extra, 1), v)
				m.Extra = append(m.Extra, 1, 1, 1, 1, 1)
			}
			return m
		},
		"times": func(i int) *lease.Message {
			m := f.asB()
			m.Stamp = []lease.Stamp{1, 1 << 40, 1 << 52, 1<<52 + 1, 1 << 53, math.MaxInt64}[i%6]
			m.SentAt = []time.Time{time.UnixMilli(math.MinInt64), time.UnixMilli(math.MaxInt64), time.Now()}[i%3]
			return m
		},
	}
}

// packet encrypts a message of the lease protocol.
func (f forger) packet(m *lease.Message) []byte {
	return f.key.packet(append([]byte{8}, lease.Encode(m)...))
}

// forge starts to send forged messages of some kinds to agent a, encrypted with a key.
func forge(k func(s *scene) key, kinds ...string) func(context.Context, *testing.T, *scene) {
	return func(ctx context.Context, t *testing.T, s *scene) {
		t.Helper()
		f := forger{spy(t, s.a.Gossip, s.key), k(s)}
		all := f.kinds()
		s.spray(ctx, t, 500, func(i int) []byte {
			return f.packet(all[kinds[i%len(kinds)]](i / len(kinds)))
		})
	}
}

// invent starts to send a message as member b every second. The messages claim that invented nodes are running.
func invent(nodes int) func(context.Context, *testing.T, *scene) {
	return func(ctx context.Context, t *testing.T, s *scene) {
		t.Helper()
		f := forger{spy(t, s.a.Gossip, s.key), s.key}
		const each = 10
		s.spray(ctx, t, nodes/each, func(i int) []byte {
			m := f.asB()
			for n := range each {
				n += i * each % nodes
				r := &lease.Record{
					Profile: lease.Profile{
						ID:          lease.NodeID(fmt.Sprint("invented", n)),
						Incarnation: 1,
						Weight:      100,
						Addr:        fmt.Sprint("127.0.0.9:", 20000+n),
					}, Version: 1, MinWire: lease.MinWireVersion, MaxWire: lease.WireVersion,
				}
				m.Records = append(m.Records, r)
				m.Heartbeats = append(m.Heartbeats, lease.Heartbeat{Handle: r.Handle(), At: m.Stamp, Renewed: m.Stamp, State: lease.Active, Version: 1})
			}
			return f.packet(m)
		})
	}
}

// TestForgeries: packets that are not encrypted with the key change nothing, however many arrive. Anyone with the key
// can impersonate all members. Without a key, anyone can. But even then, memory stays bounded, and no agent stops.
func TestForgeries(t *testing.T) {
	garbage := func(rate int) func(context.Context, *testing.T, *scene) {
		return func(ctx context.Context, t *testing.T, s *scene) {
			t.Helper()
			rng := rand.New(rand.NewPCG(1, 2))
			var packets [1 << 10][]byte
			for i := range packets {
				packets[i] = junk(rng, i, 1400)
			}
			s.spray(ctx, t, rate, func(i int) []byte { return packets[i%len(packets)] })
		}
	}
	holder := func(s *scene) key { return s.key }
	none := func(*scene) key { return nil }
	wrong := func(*scene) key { return make([]byte, 32) }
	all := []string{"leave messages", "records", "sequences", "failure-reports", "cordons", "assignments", "times"}
	stateful := []string{"--strategy", "least-partitions-1-3"}
	sieges := []siege{
		{name: "garbage, 70,000 packets/s", short: true, begin: garbage(70_000)},
		{name: "garbage, as much as a core sends", begin: garbage(0)},
		{name: "no key: garbage, 70,000 packets/s", plain: true, short: true, begin: garbage(70_000)},
		{name: "no key: garbage, as much as a core sends", plain: true, begin: garbage(0)},
		{name: "forgeries, not sealed", short: true, begin: forge(none, all...), args: stateful},
		{name: "forgeries, sealed by another key", short: true, begin: forge(wrong, all...), args: stateful},
		{name: "no key: forgeries", plain: true, short: true, believed: true, begin: forge(none, all...), args: stateful},
		{name: "no key: 5,000 invented nodes", plain: true, believed: true, begin: invent(5000)},
		{name: "with the key: 5,000 invented nodes", believed: true, begin: invent(5000)},
	}
	for _, kind := range all {
		sieges = append(sieges, siege{name: "with the key: forged " + kind, believed: true, begin: forge(holder, kind), args: stateful})
	}
	for _, g := range sieges {
		g.test(t)
	}
}

// TestForgedProcess: anyone with the key can stop an agent by claiming that a later process runs with its id.
// roost cannot prevent this, so docs/security.md says so.
func TestForgedProcess(t *testing.T) {
	t.Parallel()
	k, file := newKey(t)
	args := append(brisk(), "--key-file", file)
	a := agent(t, "a", args...)
	b := agent(t, "b", append(args, "--join", a.Gossip)...)
	agree(t, a, b)
	f := forger{spy(t, a.Gossip, k), k}
	s := scene{a: a, b: b}
	ctx, end := context.WithCancel(t.Context())
	s.spray(ctx, t, 50, func(i int) []byte { return f.packet(f.kinds()["processes"](i)) })
	a.Exits(exitFailed, `two processes use the node id "a": this process at `+a.Gossip)
	end()
	s.wait.Wait()
	agree(t, b)
}
