package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"unicode/utf8"
)

// Limits of a [Record]. They keep a record small enough for a gossip packet, and limit the memory of a set
// for any input.
const (
	MaxIDBytes           = 64
	MaxAddrBytes         = 255
	MaxZoneBytes         = 253 // length of a domain name, as for the value of a label
	MaxKeysBytes         = 16  // fingerprints of gossip keys
	MaxRoostVersionBytes = 64  // version of roost
	MaxAppVersionBytes   = 64  // version of a node's application
	MaxLabels            = 16
	MaxLabelBytes        = 64        // key of a label
	MaxValueBytes        = 253       // value of a label
	MaxMetaBytes         = 512       // what the application says
	MaxHTTP              = 1<<17 - 1 // a port and a bit
	MaxWeight            = 1_000_000 // units of placement weight
	MaxRecordBytes       = 1024      // encoded, all parts together; not all parts can have their maximum length

	// NoLoad is the load of a node that has not reported any: its load is unknown, not 0.
	NoLoad int64 = -1
)

// NodeID names a node. The operator chooses it, and it stays the same across restarts. It is 1 to 64 bytes of
// [A-Za-z0-9._:-] and square brackets, so an address can be an id: 2001:db8::1 or [2001:db8::1]:7946.
type NodeID string

// Validate returns nil if id can name a node, or why it cannot.
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

// State is what a node does at present. Only an Active node is a candidate for ownership. A node in any state
// except Left is live while its lease holds. Every heartbeat carries the state, so a change spreads as fast
// as a heartbeat.
type State uint8

// The states of a node, in the usual order. A node can return from Draining to
// Active, and from either to Settling when it fences itself.
const (
	Settling State = iota + 1 // present, not ready to own anything
	Active                    // a candidate for ownership
	Draining                  // present, gives up what it owns
	Left                      // sent a leave message; the lease has ended
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

// Record is the slowly changing part of a node's data: everything except its State, its load and the digest
// of its table, which its heartbeats carry. Records are ordered by (Incarnation, Version), and a newer one
// replaces an older one. A Record that was passed to a Set, or returned by one, must not be modified.
type Record struct {
	Profile

	Version uint32 // counts the changes within an incarnation

	// Handoff says that the node takes part in handoffs; opaque to this package.
	Handoff bool

	// RecentReturns is until when the returns of the node count against it. FlappingUntil is until when it
	// owns nothing because of them. Both are 0 if there are none, and opaque to this package. A new process
	// of the node finds them in the record of the previous process: [Set.Former].
	RecentReturns, FlappingUntil Stamp

	// Keys has fingerprints of the keys that the node's gossip uses; opaque to this package.
	Keys string

	// HTTP is twice the port of the node's HTTP API, at the host of Addr, plus 1 if it uses TLS. It is 0 if
	// others cannot reach the API. It is opaque to this package.
	HTTP uint32

	// Drains is the moment from which on the node is Draining, whatever state its heartbeats say. It is 0 if
	// no drain is planned.
	Drains Stamp

	// Meta is what the application announces about the node. It is opaque to roost, and need not be UTF-8.
	Meta string

	// MinWire and MaxWire are the versions of messages that the node reads. NewSet
	// sets them for its own node.
	MinWire, MaxWire uint8

	rest []byte // fields of a later release, passed on
}

// Validate returns all problems of r, joined, or nil.
func (r *Record) Validate() error { return r.validate(recordBytes(r)) }

// validate is Validate for a record whose encoded size is known.
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
	reject(size > MaxRecordBytes, "%d bytes on the wire, at most %d: shorten zone, labels or meta", size, MaxRecordBytes)
	return errors.Join(errs...)
}

// newer reports whether r replaces o, which is a record of the same node.
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

// Incarnation identifies one run of a node's process. A node that restarts keeps its Node and gets a greater
// Number. The zero Incarnation means none.
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
