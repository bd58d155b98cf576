//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestMixedReleases upgrades five agents, one after the other, from the last release to the current build. In another
// cluster, it downgrades them. Meanwhile, callers that use /readyz look up keys all the time. Halfway, an agent
// crashes, and then one agent of each release drains and returns. After each step, all agents compute the same table,
// and only the share of one agent has moved. No lookup may fail, no lease may expire except that of the killed agent,
// no agent may refuse another, and no message may be dropped as malformed, or because of another version or other
// settings. The agents share a Redis: all know the same rooms and the same reservation, and only the rooms of an agent
// that has ended move.
func TestMixedReleases(t *testing.T) {
	t.Parallel()
	tag := previousTag(t)
	present := agenttest.Binary(t)
	began := time.Now()
	last := buildOfTag(t, tag)
	t.Logf("built %s in %v", tag, time.Since(began).Round(time.Millisecond))
	for _, tt := range []struct{ name, from, to string }{
		{"upgrade", last, present},
		{"rollback", present, last},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			m := mixed{
				rolling: startRolling(t, tt.from, "--heartbeat", "500ms", "--ttl", "5s", "--redis", redis.URL()),
				last:    last,
				expired: make(map[*proc]float64),
				rooms:   make(map[string]hosted),
			}
			m.reserve()
			m.exe = tt.to
			defer m.understood() // may explain why waiting failed
			m.report(m.roll())
		})
	}
}

// previousTag returns the newest tag v* before this commit. Until the first release, the test is skipped, and
// scripts/skipped.sh says so.
func previousTag(t *testing.T) string {
	t.Helper()
	out, _ := exec.Command("git", "-c", "versionsort.suffix=-", "tag", "--list", "v*", "--sort=-version:refname",
		"--merged", "HEAD", "--no-contains", "HEAD").Output()
	tag, _, _ := strings.Cut(string(out), "\n")
	if tag == "" {
		t.Skip("SKIPPED: there is no release before this commit: git finds no tag v*. In a shallow clone, run: git fetch --unshallow --tags")
	}
	return tag
}

// buildOfTag builds a binary from the source of a tag, and returns its path.
func buildOfTag(t *testing.T, tag string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive, exe := filepath.Join(dir, "last.tar"), filepath.Join(dir, "roost-last")
	for _, args := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, tag},
		{"tar", "-C", dir, "-xf", archive},
		{"go", "run", "-C", dir, "-trimpath", "-race=false", "-exec", "cp", "./cmd/roost", exe}, // with -trimpath, Go's build cache contains the packages
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return exe
}

// mixed is a cluster of two releases.
type mixed struct {
	*rolling
	last    string            // the binary of the last release
	expired map[*proc]float64 // the number of leases that each node must have seen expire
	rooms   map[string]hosted // as of the last check

	reserved affinity.Reservation
}

// hosted is a room and the process that has it.
type hosted struct {
	clusterhttp.RoomAssignment

	size int
	by   *proc
}

func (h hosted) String() string {
	return fmt.Sprintf("%s on %s|%d, epoch %d", h.Room, h.Node.ID, h.Incarnation, h.Epoch)
}

// roll replaces all nodes. The node in the middle crashes. When it is back, one node of each release drains and
// returns.
func (m *mixed) roll() (steps []step) {
	m.t.Helper()
	const middle = 2
	for slot := range m.nodes {
		m.check()
		s := m.restart(slot, slot == middle)
		if slot != middle {
			steps = append(steps, s)
			continue
		}
		m.t.Logf("after kill -9: %v", s)
		for _, p := range m.others(slot) {
			m.expired[p]++
		}
		m.drain(slot)
		m.drain(slot + 1)
		m.list()
	}
	m.check()
	return steps
}

// check checks the counters of all nodes, and the rooms.
func (m *mixed) check() {
	m.t.Helper()
	m.understood()
	m.checkRooms()
	for _, p := range m.nodes {
		eventually(m.t, func() error { // the counters are updated at each heartbeat
			counts, want := values(m.t, metricsOf(m.t, p.Base)), m.expired[p]
			n := counts["roost_lease_expiries_total"] + counts["roost_lease_crashes_total"]
			if n > want {
				m.t.Fatalf("%v leases expired by the view of %s, want %v", n, p.ID, want)
			}
			if n < want {
				return fmt.Errorf("%v leases expired by the view of %s, want %v", n, p.ID, want)
			}
			return nil
		})
	}
}

// understood fails the test if a node could not read a message, or refused another node. It checks all nodes, because
// the node that counts a refusal need not be the new node, and a refused node can still join.
func (m *mixed) understood() {
	m.t.Helper()
	for _, p := range m.nodes {
		if p.Ended() {
			continue
		}
		got := values(m.t, metricsOf(m.t, p.Base))
		for _, name := range []string{
			`roost_messages_dropped_total{reason="malformed"}`, `roost_messages_dropped_total{reason="version"}`,
			`roost_messages_dropped_total{reason="settings"}`, "roost_nodes_refused_total",
		} {
			if n, ok := got[name]; n != 0 || !ok {
				m.t.Errorf("%s of %s is %v (exists: %v), want 0", name, p.ID, n, ok)
			}
		}
	}
}

const reserved = "reserved room"

// reserve reserves capacity for a room, at the first node.
func (m *mixed) reserve() {
	m.t.Helper()
	eventually(m.t, func() error { // Redis can be slow on a busy machine
		_, err := m.nodes[0].ReserveRoom(m.ctx, reserved, affinity.Demand{Size: 9}, time.Now().Add(time.Hour))
		if err != nil {
			return err
		}
		list, err := m.nodes[0].Reservations(m.ctx)
		if err == nil && len(list.Reservations) != 1 {
			err = fmt.Errorf("%d reservations, want 1", len(list.Reservations))
		}
		if err == nil {
			m.reserved = list.Reservations[0]
		}
		return err
	})
}

// checkRooms resolves rooms at all nodes, which must agree. Each room must stay where it is until its node ends, and
// then move.
func (m *mixed) checkRooms() {
	m.t.Helper()
	const rooms = 20
	for i := range rooms {
		room := fmt.Sprint("room ", i)
		at := hosted{RoomAssignment: pinRoom(m.t, m.nodes[i%len(m.nodes)], room, i), size: i}
		for _, p := range m.nodes {
			if other := (hosted{RoomAssignment: pinRoom(m.t, p, room, i)}); other.String() != at.String() {
				m.t.Errorf("%s resolves %v, another node %v", p.ID, other, at)
			}
			if p.ID == string(at.Node.ID) {
				at.by = p
			}
		}
		switch before := m.rooms[room]; {
		case at.by == nil:
			m.t.Errorf("%v is on no member", at)
		case before.by == nil: // the first check
		case !before.by.Ended() && at.String() != before.String():
			m.t.Errorf("the room has moved from %v, which runs, to %v", before, at)
		case before.by.Ended() && at.Epoch <= before.Epoch:
			m.t.Errorf("the room was %v, which has ended, and is %v", before, at)
		}
		m.rooms[room] = at
	}
	for _, p := range m.nodes {
		eventually(m.t, func() error { return m.listsRooms(p) })
		eventually(m.t, func() error { return m.listsReservation(p) })
	}
}

// listsRooms returns an error if a node lists other rooms than those of the last check.
func (m *mixed) listsRooms(p *proc) error {
	list, err := p.Rooms(m.ctx, "", 0)
	if err != nil {
		return err
	}
	n := 0
	for _, r := range list.Rooms {
		if r.Room == reserved {
			continue
		}
		n++
		at := m.rooms[r.Room]
		if r.Node != at.Node.ID || r.Incarnation != at.Incarnation || r.Epoch != at.Epoch || r.Size != at.size {
			return fmt.Errorf("%s lists %+v, want %v with %d participants", p.ID, r, at, at.size)
		}
	}
	if n != len(m.rooms) {
		return fmt.Errorf("%s lists %d rooms, want %d: %+v", p.ID, n, len(m.rooms), list.Rooms)
	}
	return nil
}

// listsReservation returns an error if a node does not list the reservation, or lists others.
func (m *mixed) listsReservation(p *proc) error {
	list, err := p.Reservations(m.ctx)
	if err != nil {
		return err
	}
	anywhere := cmpopts.IgnoreFields(affinity.Reservation{}, "Node")
	if diff := cmp.Diff([]affinity.Reservation{m.reserved}, list.Reservations, anywhere); diff != "" {
		return fmt.Errorf("%s lists other reservations (-want +got):\n%s", p.ID, diff)
	}
	return nil
}

// drain moves all partitions of a node away, and then back.
func (m *mixed) drain(slot int) {
	m.t.Helper()
	before, p := m.table(m.nodes[0]), m.nodes[slot]
	if _, err := p.Drain(m.ctx); err != nil {
		m.t.Fatal(err)
	}
	inState(m.t, p, "draining")
	agree(m.t, m.nodes...)
	m.lookUps(200)
	if _, err := p.Undrain(m.ctx); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, func() error {
		for _, n := range m.nodes {
			if after := m.table(n); after.Digest != before.Digest {
				return fmt.Errorf("%s has table %s, not %s as before the drain of %s", n.ID, after.Digest, before.Digest, p.ID)
			}
		}
		return nil
	})
	agree(m.t, m.nodes...)
	for _, w := range m.witnesses {
		eventually(m.t, func() error { return w.has(before.Digest) })
		w.take()
	}
	m.callers.differed(before.Digest) // the report does not include the drain
}

// list reads the members of each node with the commands of both releases.
func (m *mixed) list() {
	m.t.Helper()
	for _, p := range m.nodes {
		out, err := exec.Command(m.last, "members", "--addr", p.Base).CombinedOutput()
		if err != nil {
			m.t.Fatalf("roost members of the last release at %s: %v\n%s", p.ID, err, out)
		}
		for _, out := range []string{string(out), succeeds(m.t, "members", "--addr", p.Base)} {
			if n := strings.Count(out, " same"); n != len(m.nodes) {
				m.t.Errorf("roost members at %s lists %d members with the same table, want %d:\n%s", p.ID, n, len(m.nodes), out)
			}
		}
	}
}
