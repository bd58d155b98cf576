package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a [Record]. The limits keep a record small enough for a gossip packet, and bound the memory of a
// set for any input.
const (
	MaxIDBytes           = 64
	MaxAddrBytes         = 255
	MaxZoneBytes         = 253 // maximum length of a domain name, as for the value of a label
	MaxKeysBytes         = 16  // fingerprints of gossip keys
	MaxRoostVersionBytes = 64  // version of roost
	MaxAppVersionBytes   = 64  // version of a node's application
	MaxLabels            = 16
	MaxLabelBytes        = 64        // key of a label
	MaxValueBytes        = 253       // value of a label
	MaxMetaBytes         = 512       // data of the application
	MaxHTTP              = 1<<17 - 1 // a port and a bit for TLS
	MaxWeight            = 1_000_000 // units of placement weight
	MaxRecordBytes       = 1024      // encoded size of the whole record, which is less than the sum of the maximum lengths

	// NoLoad is the load of a node that has not reported its load. It means unknown, not 0.
	NoLoad int64 = -1
)

// NodeID identifies a node. The operator chooses the id, and the id remains the same across restarts. A
// NodeID has 1 to 64 bytes of [A-Za-z0-9._:-] and square brackets. So an address such as 2001:db8::1 or
// [2001:db8::1]:7946 can be an id.
type NodeID string

// Validate returns an error if id is not a valid node id.
func (id NodeID) Validate() error {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return fmt.Errorf("lease: node id %.80q has %d bytes; it must have 1 to %d", string(id), len(id), MaxIDBytes)
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '.', c == '_', c == ':', c == '-', c == '[', c == ']':
		default:
			return fmt.Errorf("lease: node id %q: byte %q is not one of [A-Za-z0-9._:-] or a square bracket", string(id), c)
		}
	}
	return nil
}

// State is the current state of a node. Only an Active node is a candidate for ownership. A node in any state
// except Left is live until its lease ends. Every heartbeat carries the state, so a change of state spreads
// as fast as a heartbeat.
type State uint8

// The states of a node, in the usual order. A Draining node can become Active again. An Active or Draining
// node becomes Settling when it fences itself.
const (
	Settling State = iota + 1 // live, but not ready to own anything
	Active                    // a candidate for ownership
	Draining                  // live, but releasing what it owns
	Left                      // has sent a leave message; the lease has ended
)

// String returns the lower-case name of s.
func (s State) String() string {
	switch s {
	case Settling:
		return "settling"
	case Active:
		return "active"
	case Draining:
		return "draining"
	case Left:
		return "left"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText encodes s as its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	for _, v := range []State{Settling, Active, Draining, Left} {
		if v.String() == string(b) {
			*s = v
			return nil
		}
	}
	return fmt.Errorf("lease: %q is not a state of a node", b)
}

// Record contains the node data that rarely changes. Heartbeats carry the rest, which is the State, the load
// and the digest of the table. Records are ordered by (Incarnation, Version), and a newer record replaces an
// older record. Do not modify a Record that you have passed to a Set or received from a Set.
type Record struct {
	Profile

	Version uint32 // incremented by each change within an incarnation

	// Handoff is true if the node takes part in handoffs. It is opaque to this package.
	Handoff bool

	// RecentReturns is the time until which earlier returns of the node count as flapping. FlappingUntil is
	// the time until which the node owns nothing because of flapping. Both are 0 if there are no recent
	// returns, and opaque to this package. A new process of the node reads both from the record of the
	// previous process; see [Set.Former].
	RecentReturns, FlappingUntil Stamp

	// Keys contains fingerprints of the node's gossip keys. It is opaque to this package.
	Keys string

	// HTTP encodes the port of the node's HTTP API at the host of Addr, as twice the port, plus 1 if the API
	// uses TLS. HTTP is 0 if other nodes cannot reach the API. It is opaque to this package.
	HTTP uint32

	// Drains is the time of a planned drain. From then on, sets show the node as Draining even if its
	// heartbeats carry the state Active. Drains is 0 if no drain is planned.
	Drains Stamp

	// Unhealthy is true while the node drains because its application is unhealthy. It is opaque to this package.
	Unhealthy bool

	// Meta contains arbitrary data of the application. It is opaque to roost, and can be binary.
	Meta string

	// MinWire and MaxWire are the first and last message versions that the node can read. NewSet sets both
	// for its own node.
	MinWire, MaxWire uint8

	rest []byte // fields of a later release, which this node relays
}

// longestAddr is the longest IP address with a port.
const longestAddr = "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535"

// Validate returns an error that joins all problems of r, or nil. It checks the size of r with the longest values of all
// fields that roost changes while the node runs, so that other nodes can still read the record then.
func (r *Record) Validate() error {
	longest := *r
	longest.Incarnation, longest.Version, longest.Weight, longest.HTTP = math.MaxUint64, math.MaxUint32, MaxWeight, MaxHTTP
	longest.RecentReturns, longest.FlappingUntil, longest.Drains = maxStamp, maxStamp, maxStamp
	longest.Keys, longest.Unhealthy = strings.Repeat(" ", MaxKeysBytes), true
	if len(r.Addr) < len(longestAddr) {
		longest.Addr = longestAddr
	}
	return r.validate(recordBytes(&longest))
}

// validate is like Validate, but for a given size.
func (r *Record) validate(size int) error {
	errs := []error{r.ID.Validate()}
	reject := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("lease: record of %.80q: "+format, append([]any{string(r.ID)}, args...)...))
		}
	}
	reject(len(r.Addr) > MaxAddrBytes, "addr has %d bytes, at most %d", len(r.Addr), MaxAddrBytes)
	reject(len(r.APIAddr) > MaxAddrBytes, "api addr has %d bytes, at most %d", len(r.APIAddr), MaxAddrBytes)
	reject(len(r.Zone) > MaxZoneBytes, "zone has %d bytes, at most %d", len(r.Zone), MaxZoneBytes)
	reject(!utf8.ValidString(r.Addr) || !utf8.ValidString(r.APIAddr) || !utf8.ValidString(r.Zone), "addresses and zone must be UTF-8")
	reject(len(r.Keys) > MaxKeysBytes, "fingerprints of keys have %d bytes, at most %d", len(r.Keys), MaxKeysBytes)
	reject(len(r.RoostVersion) > MaxRoostVersionBytes, "roost version has %d bytes, at most %d", len(r.RoostVersion), MaxRoostVersionBytes)
	reject(len(r.AppVersion) > MaxAppVersionBytes, "app version has %d bytes, at most %d", len(r.AppVersion), MaxAppVersionBytes)
	reject(!utf8.ValidString(r.RoostVersion) || !utf8.ValidString(r.AppVersion), "versions must be UTF-8")
	reject(min(r.RecentReturns, r.FlappingUntil) < 0 || max(r.RecentReturns, r.FlappingUntil) > maxStamp,
		"returns count until %d, flapping until %d: both must be cluster time", r.RecentReturns, r.FlappingUntil)
	reject(r.Drains < 0 || r.Drains > maxStamp, "drains from %d on: that must be cluster time", r.Drains)
	reject(r.HTTP > MaxHTTP, "http %d, at most %d", r.HTTP, MaxHTTP)
	reject(r.Weight > MaxWeight, "weight %d, at most %d", r.Weight, MaxWeight)
	reject(r.Capacity < 0, "capacity %d is negative", r.Capacity)
	reject(len(r.Labels) > MaxLabels, "%d labels, at most %d", len(r.Labels), MaxLabels)
	for k, v := range r.Labels {
		reject(k == "" || len(k) > MaxLabelBytes || len(v) > MaxValueBytes,
			"label %.80q: the key has 1 to %d bytes, the value at most %d", k, MaxLabelBytes, MaxValueBytes)
		reject(!utf8.ValidString(k) || !utf8.ValidString(v), "label %.80q is not UTF-8", k)
	}
	reject(len(r.Meta) > MaxMetaBytes, "meta has %d bytes, at most %d", len(r.Meta), MaxMetaBytes)
	reject(size > MaxRecordBytes, "up to %d bytes on the wire, at most %d: shorten api addr, zone, labels or meta", size, MaxRecordBytes)
	return errors.Join(errs...)
}

// newer reports whether r replaces o. Both must be records of the same node.
func (r *Record) newer(o *Record) bool {
	if r.Incarnation != o.Incarnation {
		return r.Incarnation > o.Incarnation
	}
	return r.Version > o.Version
}

// clone returns a copy that shares nothing with r.
func (r *Record) clone() *Record {
	c := *r
	c.Labels = maps.Clone(r.Labels)
	return &c
}

// Incarnation identifies one run of a node's process. After a restart, a node has the same Node and a greater
// Number. The zero Incarnation means no incarnation.
type Incarnation struct {
	Node   NodeID
	Number uint64
}

// String returns node#number.
func (i Incarnation) String() string {
	return string(i.Node) + "#" + strconv.FormatUint(i.Number, 10)
}

// Compare orders incarnations by node, then by number.
func (i Incarnation) Compare(o Incarnation) int {
	return cmp.Or(cmp.Compare(i.Node, o.Node), cmp.Compare(i.Number, o.Number))
}
