package affinitytest

import (
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// reserve records a reservation for a room of this test.
func (p *pins) reserve(s pinstore.Store, suffix, needs string, until time.Time) pinstore.Reservation {
	p.Helper()
	r := pinstore.Reservation{Room: p.room + suffix, Needs: needs, Until: until}
	if err := s.Reserve(p.Context(), r); err != nil {
		p.Fatal(err)
	}
	return r
}

// reserved returns an error unless exactly these reservations of the test's rooms exist.
func (p *pins) reserved(s pinstore.Store, want ...pinstore.Reservation) error {
	p.Helper()
	all, err := s.Reservations(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	got := make(map[string]pinstore.Reservation)
	for _, r := range all {
		if !strings.HasPrefix(r.Room, p.room) {
			continue
		}
		if _, twice := got[r.Room]; twice {
			return fmt.Errorf("%q has two reservations", r.Room)
		}
		got[r.Room] = r
	}
	if len(got) != len(want) {
		return fmt.Errorf("reservations %v, want %v", got, want)
	}
	for _, w := range want {
		if g := got[w.Room]; g.Needs != w.Needs || !g.Until.Equal(w.Until) {
			return fmt.Errorf("reservation %v, want %v", g, w)
		}
	}
	return nil
}

// A reservation replaces the earlier reservation of its room, even if it ends earlier. All users see it until it is
// removed.
func reservations(p *pins) {
	is := func(want ...pinstore.Reservation) {
		p.Helper()
		if err := p.reserved(p.b, want...); err != nil {
			p.Fatal(err)
		}
	}
	end := time.UnixMilli(time.Now().Add(long).UnixMilli())
	is()
	p.reserve(p.a, "", "units=5", end)
	other := p.reserve(p.b, " |2", "units=7&require=recorder%3Dyes", end)
	is(p.reserve(p.b, "", "units=6", end), other)
	is(p.reserve(p.a, "", "units=6", end.Add(-time.Minute)), other)
	is(p.reserve(p.a, "", "units=6", end.Add(time.Minute)), other)
	p.reserve(p.a, "", "", time.Time{})
	is(other)
	p.reserve(p.b, " |2", "", time.Time{})
	p.reserve(p.b, " never", "", time.Time{})
	is()
}

// A reservation is no longer listed after its end, and can be replaced then.
func reservationsEnd(p *pins) {
	start := time.Now()
	p.reserve(p.a, "", "units=5", time.UnixMilli(start.Add(brief).UnixMilli()))
	p.eventually(func() error { return p.reserved(p.b) })
	p.lasted(start)
	later := p.reserve(p.a, "", "units=5", time.UnixMilli(time.Now().Add(long).UnixMilli()))
	if err := p.reserved(p.b, later); err != nil {
		p.Error(err)
	}
}
