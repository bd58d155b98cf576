package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Eviction takes a node out for all members, until an end: it owns nothing and stays a
// member. An eviction concerns the id, so a restart of the node does not end it. The end
// is a moment of cluster time, so that it is the same for all nodes.
type Eviction struct {
	ID     NodeID
	At     Stamp  // when it was decided: of two evictions of a node, the later one counts
	Until  Stamp  // the end; At if the word only ends an earlier eviction
	Keep   Stamp  // until when it is remembered, because it replaces an eviction with a later end
	Reason string // for people; one line

	rest string // fields of a later release, passed on
}

// Validate returns all faults of e, joined, or nil.
func (e *Eviction) Validate() error {
	var errs []error
	if err := e.ID.Validate(); err != nil {
		errs = append(errs, err)
	}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("lease: eviction of %.80q: "+format, append([]any{string(e.ID)}, args...)...))
		}
	}
	ordered := e.At <= e.Until && e.Until <= e.Keep
	fault(!ordered, "it ends before it begins")
	fault(ordered && e.Keep-e.At > stamps(MaxEvictionTime), "it lasts longer than %v", MaxEvictionTime)
	fault(len(e.Reason) > MaxReasonBytes, "the reason has %d bytes, at most %d", len(e.Reason), MaxReasonBytes)
	fault(!utf8.ValidString(e.Reason) || strings.ContainsFunc(e.Reason, unicode.IsControl), "the reason is not one line of UTF-8")
	return errors.Join(errs...)
}

// compare orders evictions in a way that is the same for all nodes, the later ones last.
func (e Eviction) compare(o Eviction) int {
	return cmp.Or(
		cmp.Compare(e.At, o.At), cmp.Compare(e.Until, o.Until), cmp.Compare(e.Keep, o.Keep),
		cmp.Compare(e.ID, o.ID), cmp.Compare(e.Reason, o.Reason), cmp.Compare(e.rest, o.rest),
	)
}

// mergeEvictions returns the last word on each node, by id; of more than MaxEvictions the
// latest ones. It is commutative, associative and idempotent, so all nodes arrive at the
// same evictions, in any order of messages.
func mergeEvictions(a, b []Eviction) []Eviction {
	last := make(map[NodeID]Eviction, len(a)+len(b))
	for _, e := range slices.Concat(a, b) {
		if o, ok := last[e.ID]; !ok || e.compare(o) > 0 {
			last[e.ID] = e
		}
	}
	all := slices.SortedFunc(maps.Values(last), func(a, b Eviction) int { return b.compare(a) })
	all = all[:min(len(all), MaxEvictions)]
	slices.SortFunc(all, func(a, b Eviction) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// digestOfEvictions identifies evictions; it is 0 for none.
func digestOfEvictions(all []Eviction) uint32 {
	if len(all) == 0 {
		return 0
	}
	var w writer
	for i := range all {
		w.eviction(&all[i], all[i].At)
		w.uvarint(uint64(all[i].At))
	}
	return max(1, uint32(xxhash.Sum64(w.b)))
}

// maxEvictionBytes is an upper bound for the encoded size of an eviction.
const maxEvictionBytes = 2 + 1 + MaxIDBytes + 3*10 + 2 + MaxReasonBytes + maxRestBytes

// oldestEviction bounds the ages of evictions on the wire: an ended one is forgotten a
// moment late.
const oldestEviction = 2 * maxAge

// eviction appends an eviction to a message with the given stamp, behind its length: the
// id, how long ago it was decided, how long it lasts, how much longer it is remembered,
// and the reason.
func (w *writer) eviction(e *Eviction, at Stamp) {
	var own writer
	own.text(string(e.ID))
	own.uvarint(uint64(min(max(0, at-e.At), oldestEviction)))
	own.uvarint(uint64(e.Until - e.At))
	own.uvarint(uint64(e.Keep - e.Until))
	own.text(e.Reason)
	w.text(string(own.b) + e.rest)
}

const flagWantsEvictions = 1

// evictions appends flags, the digest of all evictions that the sender knows, and some.
func (w *writer) evictions(m *Message) {
	if m.Evicted == 0 && !m.WantsEvictions && len(m.Evictions) == 0 {
		return
	}
	w.section(sectionEvictions, func() {
		var flags uint64
		if m.WantsEvictions {
			flags |= flagWantsEvictions
		}
		w.uvarint(flags)
		w.fixed32(m.Evicted)
		for i := range m.Evictions {
			w.eviction(&m.Evictions[i], m.Stamp)
		}
	})
}

// readEvictions reads what [writer.evictions] wrote. Fields of a later release are part of
// an eviction, and passed on with it.
func (m *Message) readEvictions(r *reader) {
	m.WantsEvictions = r.uvarint(math.MaxUint64)&flagWantsEvictions != 0
	m.Evicted = r.fixed32()
	for len(r.b) > 0 {
		if m.Evictions = append(m.Evictions, r.eviction(m.Stamp)); len(m.Evictions) > MaxEvictions {
			r.fail("too many evictions")
		}
	}
}

func (r *reader) eviction(at Stamp) Eviction {
	body := reader{b: r.take(r.uvarint(maxEvictionBytes))}
	var e Eviction
	e.ID = NodeID(body.text(MaxIDBytes))
	e.At = at - Stamp(body.uvarint(uint64(oldestEviction)))
	e.Until = e.At + Stamp(body.uvarint(uint64(maxAge)))
	e.Keep = e.Until + Stamp(body.uvarint(uint64(maxAge)))
	e.Reason = body.text(MaxReasonBytes)
	e.rest = string(body.rest(maxRestBytes))
	if body.fault != "" {
		r.fail("eviction: " + body.fault)
	} else if err := e.Validate(); err != nil {
		r.fail(err.Error())
	}
	return e
}
