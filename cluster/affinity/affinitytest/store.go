package affinitytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Store checks that a store keeps the promises of pinstore.Store. Store calls open for each test. Each call
// of the function that open returns must return a store. It can be a new instance with the same data or
// always the same instance. The function open must also close the instances when the given test ends.
//
// The suite uses its own rooms and nodes, in partitions 0 to 999. Each test is a separate cluster. If the
// store does not allow two clusters to use the same data, open must return a store with different data for
// each test. The suite takes about a second. If the store does not notify, the suite additionally
// takes twice the freshness of a result.
func Store(t *testing.T, open func(t *testing.T) (instance func() pinstore.Store)) {
	for _, c := range []struct {
		name string
		test func(*pins)
	}{
		{"ReadsNothing", readsNothing},
		{"FirstClaimWins", firstClaimWins},
		{"ClaimsRace", claimsRace},
		{"ReplaceCompares", replaceCompares},
		{"ReplacesRace", replacesRace},
		{"RefreshKeepsEpoch", refreshKeepsEpoch},
		{"NeedsAreKept", needsAreKept},
		{"LimitHolds", limitHolds},
		{"LimitCountsARoomOnce", limitCountsARoomOnce},
		{"LimitKeepsThePin", limitKeepsThePin},
		{"ReleaseCompares", releaseCompares},
		{"EpochGrows", epochGrows},
		{"Expires", expires},
		{"RefreshProlongs", refreshProlongs},
		{"Batch", batch},
		{"RoomNames", roomNames},
		{"NoTTL", noTTL},
		{"IndexSelects", indexSelects},
		{"IndexFollows", indexFollows},
		{"IndexForgets", indexForgets},
		{"IndexLimits", indexLimits},
		{"IndexConcurrent", indexConcurrent},
		{"Heartbeats", heartbeats},
		{"HeartbeatsExpire", heartbeatsExpire},
		{"SettingsDiffer", settingsDiffer},
		{"SettingsRefused", settingsRefused},
		{"SettingsLeftOut", settingsLeftOut},
		{"SettingsEnd", settingsEnd},
		{"SettingsLast", settingsLast},
		{"SettingsComeBack", settingsComeBack},
		{"SettingsRace", settingsRace},
		{"Reservations", reservations},
		{"ReservationsEnd", reservationsEnd},
		{"Notifies", notifies},
		{"NotifiesNoLonger", notifiesNoLonger},
		{"ContextEnded", contextEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			instance := open(t)
			unique := time.Now().UnixNano()
			c.test(&pins{
				T: t, instance: instance, a: instance(), b: instance(),
				room:  fmt.Sprintf("%s %d", t.Name(), unique),
				first: incarnation(unique, "node-1", 1), again: incarnation(unique, "node-1", 2), second: incarnation(unique, "node:2.b_", 1),
			})
		})
	}
}

// long is a TTL that never expires during a test. brief is a TTL that tests wait for.
const (
	long  = time.Hour
	brief = 100 * time.Millisecond
)

// pins is the fixture of a test: instances of the store, a room in partition home that only this test uses,
// and the test's own nodes. first and again are two incarnations of the same node.
type pins struct {
	*testing.T
	instance             func() pinstore.Store
	a, b                 pinstore.Store
	room                 string
	first, again, second lease.Incarnation
}

const home placement.Partition = 17

// lasted fails the test if a record with a TTL of brief, written after start, has expired too early. It tolerates a
// millisecond, because stores count in whole milliseconds.
func (p *pins) lasted(start time.Time) {
	p.Helper()
	if d := time.Since(start); d <= brief-time.Millisecond {
		p.Errorf("it lasted %v; want %v", d, brief)
	}
}

func incarnation(unique int64, id string, incarnation uint64) lease.Incarnation {
	return lease.Incarnation{Node: lease.NodeID(fmt.Sprintf("%s-%d", id, unique)), Number: incarnation}
}

// do performs one op on the test's room, or on op.Room if that is set.
func (p *pins) do(s pinstore.Store, op pinstore.Op) pinstore.Result {
	p.Helper()
	op.Partition = home
	if op.Room == "" {
		op.Room = p.room
	}
	return p.all(s, op)[0]
}

func (p *pins) all(s pinstore.Store, ops ...pinstore.Op) []pinstore.Result {
	p.Helper()
	results := s.Swap(p.Context(), ops...)
	if len(results) != len(ops) {
		p.Fatalf("%d results for %d ops", len(results), len(ops))
	}
	for i, r := range results {
		if r.Err != nil {
			p.Fatalf("room %q: %v", ops[i].Room, r.Err)
		}
	}
	return results
}

func (p *pins) read(s pinstore.Store) pinstore.Pin {
	p.Helper()
	return p.do(s, pinstore.Op{}).Pin
}

func claimOf(l lease.Incarnation) pinstore.Op {
	return pinstore.Op{Set: pinstore.Pin{Incarnation: l}, TTL: long}
}

// claim pins the room to l. The room must not have a pin yet.
func (p *pins) claim(s pinstore.Store, l lease.Incarnation) pinstore.Pin {
	p.Helper()
	return p.succeed(s, claimOf(l), l)
}

// succeed performs an op that must take effect. Afterward, the room must be pinned to l.
func (p *pins) succeed(s pinstore.Store, op pinstore.Op, l lease.Incarnation) pinstore.Pin {
	p.Helper()
	r := p.do(s, op)
	if !r.Done || r.Pin.Incarnation != l {
		p.Fatalf("done %t, pin %v; want done and %v", r.Done, r.Pin, l)
	}
	return r.Pin
}

// fail performs an op that must not take effect and must return the existing pin.
func (p *pins) fail(s pinstore.Store, op pinstore.Op, stands pinstore.Pin) {
	p.Helper()
	if r := p.do(s, op); r.Done || r.Pin != stands {
		p.Fatalf("done %t, pin %v; want not done and %v", r.Done, r.Pin, stands)
	}
	if pin := p.read(s); pin != stands {
		p.Fatalf("%v stands afterwards; want %v", pin, stands)
	}
}

// index returns the epochs of the rooms that are pinned to an incarnation in partition home.
func (p *pins) index(s pinstore.Store, l lease.Incarnation) map[string]uint64 {
	p.Helper()
	return p.indexOf(s, 10_000, []placement.Partition{home}, l)
}

func (p *pins) indexOf(s pinstore.Store, limit int, partitions []placement.Partition, l lease.Incarnation) map[string]uint64 {
	p.Helper()
	entries, err := s.Index(p.Context(), partitions, func(x lease.Incarnation) bool { return x == l }, limit)
	if err != nil {
		p.Fatal(err)
	}
	if len(entries) > limit {
		p.Fatalf("%d entries; the limit was %d", len(entries), limit)
	}
	found := map[string]uint64{}
	for _, e := range entries {
		if e.Pin.Incarnation != l {
			p.Fatalf("entry %v; asked for %v", e, l)
		}
		if _, twice := found[e.Room]; twice {
			p.Fatalf("room %q is there twice", e.Room)
		}
		found[e.Room] = e.Pin.Epoch
	}
	return found
}

// eventually waits until f returns nil.
func (p *pins) eventually(f func() error) { p.Helper(); eventually(p.T, f) }

func contextEnded(p *pins) {
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	op := claimOf(p.first)
	op.Room = p.room
	results := p.a.Swap(ctx, op, pinstore.Op{Room: p.room + " other"})
	if len(results) != 2 {
		p.Fatalf("%d results for 2 ops", len(results))
	}
	_, indexErr := p.a.Index(ctx, []placement.Partition{home}, func(lease.Incarnation) bool { return true }, 1)
	_, signErr := p.a.Heartbeat(ctx, p.first, long, nil)
	_, agreeErr := p.a.Agree(ctx, p.first, long, p.stating(0, "64", ""))
	reserveErr := p.a.Reserve(ctx, pinstore.Reservation{Room: p.room, Until: time.Now().Add(long)})
	_, reservationsErr := p.a.Reservations(ctx)
	for _, err := range []error{results[0].Err, results[1].Err, indexErr, signErr, agreeErr, reserveErr, reservationsErr} {
		if !errors.Is(err, pinstore.ErrStore) || !errors.Is(err, context.Canceled) {
			p.Errorf("error %v; want an ErrStore because of %v", err, context.Canceled)
		}
	}
}
