package lease

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Cordon prevents a node from owning anything until a given time, according to all members. The node remains
// a member. A cordon refers to the node's id, so restarting the node does not end the cordon. The end of a
// cordon is a cluster time, so the cordon ends at the same time on all nodes.
type Cordon struct {
	ID     NodeID
	At     Stamp  // when the cordon was created; of two cordons for a node, the later cordon wins
	Until  Stamp  // when the cordon ends; equal to At if it only ends an earlier cordon
	Keep   Stamp  // until when sets remember the cordon, because it can replace a cordon with a later end
	Reason string // one line for operators

	rest string // fields of a later release, which this node relays
}

// Validate returns an error that joins all problems of c, or nil.
func (c *Cordon) Validate() error {
	var errs []error
	if err := c.ID.Validate(); err != nil {
		errs = append(errs, err)
	}
	reject := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("lease: cordon of %.80q: "+format, append([]any{string(c.ID)}, args...)...))
		}
	}
	ordered := c.At <= c.Until && c.Until <= c.Keep
	reject(!ordered, "it ends before it begins")
	reject(ordered && c.Keep-c.At > stamps(MaxCordonTime), "it lasts longer than %v", MaxCordonTime)
	reject(len(c.Reason) > MaxReasonBytes, "the reason has %d bytes, at most %d", len(c.Reason), MaxReasonBytes)
	reject(!utf8.ValidString(c.Reason) || strings.ContainsFunc(c.Reason, unicode.IsControl), "the reason is not one line of UTF-8")
	return errors.Join(errs...)
}

// compare orders cordons from oldest to latest. All nodes use the same total order.
func (c Cordon) compare(o Cordon) int {
	return cmp.Or(
		cmp.Compare(c.At, o.At), cmp.Compare(c.Until, o.Until), cmp.Compare(c.Keep, o.Keep),
		cmp.Compare(c.ID, o.ID), cmp.Compare(c.Reason, o.Reason), cmp.Compare(c.rest, o.rest),
	)
}

// mergeCordons returns the latest cordon of each node, sorted by id. If there are more than MaxCordons,
// mergeCordons keeps the latest. Merging is commutative, associative and idempotent, so all nodes reach the
// same cordons in any order of messages.
func mergeCordons(a, b []Cordon) []Cordon {
	last := make(map[NodeID]Cordon, len(a)+len(b))
	for _, c := range slices.Concat(a, b) {
		if o, ok := last[c.ID]; !ok || c.compare(o) > 0 {
			last[c.ID] = c
		}
	}
	all := slices.SortedFunc(maps.Values(last), func(a, b Cordon) int { return b.compare(a) })
	all = all[:min(len(all), MaxCordons)]
	slices.SortFunc(all, func(a, b Cordon) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// digestOfCordons returns a hash of the cordons, or 0 if there are none.
func digestOfCordons(all []Cordon) uint32 {
	if len(all) == 0 {
		return 0
	}
	var b []byte
	for i := range all {
		c := &all[i]
		for _, part := range []string{string(c.ID), c.Reason, c.rest} {
			b = append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
		}
		for _, at := range []Stamp{c.At, c.Until, c.Keep} {
			b = binary.BigEndian.AppendUint64(b, uint64(at))
		}
	}
	return max(1, uint32(xxhash.Sum64(b)))
}

// cordons is the protocol for cordoned nodes. Every message contains a digest of all cordons that its sender
// knows. If the digest in received messages differs from a node's own digest for some time, the node pulls
// the cordons that it lacks.
type cordons struct {
	*core
	all     []Cordon       // sorted by id, including ended cordons that the set still remembers; never modified
	digest  uint32         // of all
	sent    map[NodeID]int // how many copies of each cordon this node has sent
	inForce []Cordon       // the active cordons, updated by expire
	next    Stamp          // when the next cordon ends or is forgotten; 0 = there are no cordons

	differs time.Time // when a message first had a different digest since the last message with the same digest; zero = none
	pulled  time.Time // when this node last pulled cordons
}

// drop removes all cordons, because their times do not refer to this cluster's time.
func (c *cordons) drop() { *c = cordons{core: c.core} }

// decide creates a cordon for a node that begins now and lasts for d. It returns the cordon, and whether the cordon
// changes anything.
func (c *cordons) decide(now time.Time, id NodeID, d time.Duration, reason string) (next Cordon, ok bool, err error) {
	next = Cordon{ID: id, At: c.time.at(now), Reason: reason}
	i, known := c.search(id)
	if known {
		next.At = max(next.At, c.all[i].At+1)
	}
	next.Until = next.At + stamps(d)
	next.Keep = next.Until
	if known {
		next.Keep = max(next.Until, c.all[i].Keep)
	}
	switch err := next.Validate(); {
	case err != nil:
		return next, false, err
	case d <= 0 && !known:
		return next, false, nil
	case !known && len(c.all) >= MaxCordons:
		return next, false, ErrCordons
	}
	return next, true, nil
}

func (c *cordons) search(id NodeID) (int, bool) { return searchCordon(c.all, id) }

func searchCordon(all []Cordon, id NodeID) (int, bool) {
	return slices.BinarySearchFunc(all, id, func(c Cordon, id NodeID) int { return cmp.Compare(c.ID, id) })
}

// merge adds received cordons, and reports whether any of them was new.
func (c *cordons) merge(now time.Time, received []Cordon) bool {
	at := c.time.at(now)
	all := mergeCordons(c.all, slices.DeleteFunc(slices.Clone(received), func(o Cordon) bool { return o.Keep <= at }))
	if slices.Equal(all, c.all) {
		return false
	}
	sent := make(map[NodeID]int, len(all))
	for _, o := range all {
		if i, known := c.search(o.ID); known && c.all[i] == o {
			sent[o.ID] = c.sent[o.ID]
		}
	}
	c.all, c.sent, c.digest = all, sent, digestOfCordons(all)
	c.expire(now)
	return true
}

// apply adds the cordons of a message, and pulls the cordons that this node lacks.
func (c *cordons) apply(now time.Time, m *Message, e *Effect) {
	if len(m.Cordons) > 0 && c.merge(now, m.Cordons) {
		e.Changed, e.Urgent = true, true
	}
	wait := c.params.repairAfter()
	switch {
	case m.Cordoned == c.digest:
		c.differs = time.Time{}
	case c.differs.IsZero():
		c.differs = now
	case now.Sub(c.differs) >= wait && now.Sub(c.pulled) >= wait/2 && c.AddrOf(m.From) != "":
		c.pulled = now
		e.pullCordons = true
	}
}

// expire ends cordons whose time is over, and forgets ended cordons whose Keep is over. It reports whether
// the set of active cordons changed.
func (c *cordons) expire(now time.Time) (changed bool) {
	at := c.time.at(now)
	if c.next == 0 && len(c.all) == 0 {
		return false
	}
	kept := slices.DeleteFunc(slices.Clone(c.all), func(o Cordon) bool { return o.Keep <= at })
	inForce := slices.DeleteFunc(slices.Clone(kept), func(o Cordon) bool { return o.Until <= at })
	if len(kept) < len(c.all) {
		c.all, c.digest = kept, digestOfCordons(kept)
	}
	c.next = 0
	for _, o := range kept {
		end := o.Keep
		if o.Until > at {
			end = o.Until
		}
		if c.next == 0 || end < c.next {
			c.next = end
		}
	}
	if slices.Equal(inForce, c.inForce) {
		return false
	}
	begun := slices.ContainsFunc(inForce, func(o Cordon) bool { return !c.holds(o.ID) })
	c.lost = c.lost || begun
	c.inForce = inForce
	return true
}

// deadline returns when the next cordon ends or is forgotten, or the zero time if there are no cordons.
func (c *cordons) deadline() time.Time {
	if c.next == 0 {
		return time.Time{}
	}
	return c.time.local(c.next)
}

// holds reports whether a node is cordoned.
func (c *cordons) holds(id NodeID) bool {
	_, ok := searchCordon(c.inForce, id)
	return ok
}

// spared reports whether the set ignores all cordons, because otherwise no node could own anything.
func (c *cordons) spared() bool {
	candidates := 0
	for _, e := range c.live {
		if e.state == Active && e.rec.Weight > 0 && !c.drains.begun(e.rec) {
			if !c.holds(e.rec.ID) {
				return false
			}
			candidates++
		}
	}
	return candidates > 0
}

// add adds the cordons that this node has not sent often enough, least sent first, up to a third of the
// draft.
func (c *cordons) add(d *draft) {
	if len(c.all) == 0 {
		return
	}
	c.spread.begin()
	for i := range c.all {
		if sent := c.sent[c.all[i].ID]; sent < c.rowCopies() {
			c.spread.offer(candidate{sent: int32(sent), place: i})
		}
	}
	space := d.free / 3
	for _, due := range c.spread.candidates {
		if o := &c.all[due.place]; o.size() <= space {
			space -= o.size()
			d.free -= o.size()
			c.sent[o.ID] += d.recipients
			d.Cordons = append(d.Cordons, *o)
			d.news = true
		}
	}
}

// Cordoned returns the active cordons, sorted by id. The result must not be modified.
func (c *cordons) Cordoned() []Cordon { return c.inForce }

// size returns an upper bound for the encoded size of c.
func (c *Cordon) size() int {
	return maxCordonBytes - MaxIDBytes - MaxReasonBytes - maxRestBytes + len(c.ID) + len(c.Reason) + len(c.rest)
}
