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

// Cordon takes a node out for all members, until an end: it owns nothing and stays a
// member. A cordon concerns the id, so a restart of the node does not end it. The end
// is a moment of cluster time, so that it is the same for all nodes.
type Cordon struct {
	ID     NodeID
	At     Stamp  // when it was decided: of two cordons of a node, the later one counts
	Until  Stamp  // the end; At if the word only ends an earlier cordon
	Keep   Stamp  // until when it is remembered, because it replaces a cordon with a later end
	Reason string // for people; one line

	rest string // fields of a later release, passed on
}

// Validate returns all problems of e, joined, or nil.
func (e *Cordon) Validate() error {
	var errs []error
	if err := e.ID.Validate(); err != nil {
		errs = append(errs, err)
	}
	problem := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("lease: cordon of %.80q: "+format, append([]any{string(e.ID)}, args...)...))
		}
	}
	ordered := e.At <= e.Until && e.Until <= e.Keep
	problem(!ordered, "it ends before it begins")
	problem(ordered && e.Keep-e.At > stamps(MaxCordonTime), "it lasts longer than %v", MaxCordonTime)
	problem(len(e.Reason) > MaxReasonBytes, "the reason has %d bytes, at most %d", len(e.Reason), MaxReasonBytes)
	problem(!utf8.ValidString(e.Reason) || strings.ContainsFunc(e.Reason, unicode.IsControl), "the reason is not one line of UTF-8")
	return errors.Join(errs...)
}

// compare orders cordons in a way that is the same for all nodes, the later ones last.
func (e Cordon) compare(o Cordon) int {
	return cmp.Or(
		cmp.Compare(e.At, o.At), cmp.Compare(e.Until, o.Until), cmp.Compare(e.Keep, o.Keep),
		cmp.Compare(e.ID, o.ID), cmp.Compare(e.Reason, o.Reason), cmp.Compare(e.rest, o.rest),
	)
}

// mergeCordons returns the last word on each node, by id; of more than MaxCordons the
// latest ones. It is commutative, associative and idempotent, so all nodes arrive at the
// same cordons, in any order of messages.
func mergeCordons(a, b []Cordon) []Cordon {
	last := make(map[NodeID]Cordon, len(a)+len(b))
	for _, e := range slices.Concat(a, b) {
		if o, ok := last[e.ID]; !ok || e.compare(o) > 0 {
			last[e.ID] = e
		}
	}
	all := slices.SortedFunc(maps.Values(last), func(a, b Cordon) int { return b.compare(a) })
	all = all[:min(len(all), MaxCordons)]
	slices.SortFunc(all, func(a, b Cordon) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// digestOfCordons identifies cordons; it is 0 for none.
func digestOfCordons(all []Cordon) uint32 {
	if len(all) == 0 {
		return 0
	}
	var w writer
	for i := range all {
		w.cordon(&all[i], all[i].At)
		w.uvarint(uint64(all[i].At))
	}
	return max(1, uint32(xxhash.Sum64(w.b)))
}

// maxCordonBytes is an upper bound for the encoded size of a cordon.
const maxCordonBytes = 2 + 1 + MaxIDBytes + 3*10 + 2 + MaxReasonBytes + maxRestBytes

// oldestCordon bounds the ages of cordons on the wire: an ended one is forgotten a
// moment late.
const oldestCordon = 2 * maxAge

// cordon appends a cordon to a message with the given stamp, behind its length: the
// id, how long ago it was decided, how long it lasts, how much longer it is remembered,
// and the reason.
func (w *writer) cordon(e *Cordon, at Stamp) {
	var own writer
	own.text(string(e.ID))
	own.uvarint(uint64(min(max(0, at-e.At), oldestCordon)))
	own.uvarint(uint64(e.Until - e.At))
	own.uvarint(uint64(e.Keep - e.Until))
	own.text(e.Reason)
	w.text(string(own.b) + e.rest)
}

const flagWantsCordons = 1

// cordons appends flags, the digest of all cordons that the sender knows, and some.
func (w *writer) cordons(m *Message) {
	if m.Cordoned == 0 && !m.PullCordons && len(m.Cordons) == 0 {
		return
	}
	w.section(sectionCordons, func() {
		var flags uint64
		if m.PullCordons {
			flags |= flagWantsCordons
		}
		w.uvarint(flags)
		w.fixed32(m.Cordoned)
		for i := range m.Cordons {
			w.cordon(&m.Cordons[i], m.Stamp)
		}
	})
}

// readCordons reads what [writer.cordons] wrote. Fields of a later release are part of
// a cordon, and passed on with it.
func (m *Message) readCordons(r *reader) {
	m.PullCordons = r.uvarint(math.MaxUint64)&flagWantsCordons != 0
	m.Cordoned = r.fixed32()
	for len(r.b) > 0 {
		if m.Cordons = append(m.Cordons, r.cordon(m.Stamp)); len(m.Cordons) > MaxCordons {
			r.fail("too many cordons")
		}
	}
}

func (r *reader) cordon(at Stamp) Cordon {
	body := reader{b: r.take(r.uvarint(maxCordonBytes))}
	var e Cordon
	e.ID = NodeID(body.text(MaxIDBytes))
	e.At = at - Stamp(body.uvarint(uint64(oldestCordon)))
	e.Until = e.At + Stamp(body.uvarint(uint64(maxAge)))
	e.Keep = e.Until + Stamp(body.uvarint(uint64(maxAge)))
	e.Reason = body.text(MaxReasonBytes)
	e.rest = string(body.rest(maxRestBytes))
	if body.problem != "" {
		r.fail("cordon: " + body.problem)
	} else if err := e.Validate(); err != nil {
		r.fail(err.Error())
	}
	return e
}
