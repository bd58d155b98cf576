package lease

import "time"

// These are the helpers of the tests inside the package: of the wire format, and of the models, which copy sets. All
// other tests are outside, with helper_test.go.

// epoch is the start of most tests. It is a whole millisecond, as on the wire.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

// rec returns a plausible record.
func rec(id NodeID, incarnation uint64) *Record {
	return &Record{
		Profile: Profile{ID: id, Incarnation: incarnation, Addr: string(id) + ":7946", Weight: 1}, Version: 1,
	}
}

// stampAt returns the cluster time at an instant by the clock of the tests.
func stampAt(at time.Time) Stamp { return Stamp(at.UnixMilli()) }

var testParams = Params{TTL: 6 * time.Second, MaxSkew: 5 * time.Second, Settings: 77}

// messageFrom returns a message that from, which is trusted, sends at the instant at: its
// records, then its heartbeats.
func messageFrom(at time.Time, from *Record, heartbeats []Heartbeat, records ...*Record) *Message {
	trusted[from.Handle()] = epoch.AddDate(1000, 0, 0)
	return &Message{
		Settings: testParams.Settings, From: from.Handle(), Stamp: stampAt(at), SentAt: at,
		Heartbeats: heartbeats, Records: records,
	}
}

// hello returns the first message of a node, sent with its heartbeat.
func hello(at time.Time, r *Record) *Message {
	b := Heartbeat{Handle: r.Handle(), At: stampAt(at), State: Active, Version: r.Version, Load: 7}
	return messageFrom(at, r, []Heartbeat{b}, r)
}

// startSet returns the set of a member that is Active from its first heartbeat.
func startSet(now time.Time, r *Record, p Params) *Set {
	s := NewSet(now, *r, p)
	s.Establish()
	s.state, s.self.state = Active, Active
	s.runs = trusted
	trusted[s.self.handle] = epoch.AddDate(1000, 0, 0)
	return s
}

// trusted are the senders of messageFrom and the nodes of startSet: they count as if they had just answered a
// challenge.
var trusted = make(map[Handle]time.Time)
