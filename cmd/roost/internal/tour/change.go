package tour

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// change is a step that changes the cluster.
type change struct {
	title, why string
	what       string // for the summary
	act        func(context.Context) error
	progress   string       // what the tour waits for the agents to do
	oneIn      int          // one of so many partitions should move; 0 for none
	usual      string       // a remark on the time until all agreed
	gone       lease.NodeID // its pinned rooms should move; "" for none
	checks     func(outcome) []check
	after      func(context.Context) ([]check, error) // may be nil
}

// outcome is the effect of a change.
type outcome struct {
	moves         []move         // partitions
	before, after map[string]pin // of rooms
	took          time.Duration  // until all agreed
	earlier       []answer
}

// apply makes a change and shows its effect.
func (t *tour) apply(ctx context.Context, c change) error {
	t.out.title(t.step, c.title, c.why)
	since := time.Now()
	if err := c.act(ctx); err != nil {
		return err
	}
	took, err := t.agreed(ctx, since, c.progress)
	if err != nil {
		return err
	}
	var failedOver time.Duration
	if c.gone != "" {
		if failedOver, err = t.failedOver(ctx, since, c.gone); err != nil {
			return err
		}
	}
	before := t.seen
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	asked, err := t.visited(ctx)
	if err != nil {
		return err
	}
	moves := movesOf(before[0].owners, t.seen[0].owners)
	o := outcome{moves, before[0].pins, t.seen[0].pins, took, before}
	r := row{
		what: c.what, moved: len(moves), of: len(t.seen[0].owners), expected: "none",
		rooms: len(movesOf(before[0].placed, t.seen[0].placed)), pinned: len(movedPins(o.before, o.after)), agreed: took,
	}
	t.holdings(before)
	t.facts(c, &r, o, failedOver)
	checks := []check{sameTable(t.seen), oneOwner(t.seen), sameRooms(t.rooms, t.seen)}
	checks = append(append(checks, c.checks(o)...), asked...)
	if c.after != nil {
		last, err := c.after(ctx)
		if err != nil {
			return err
		}
		checks = append(checks, last...)
	}
	r.checks, r.held = len(checks), t.conclude(checks...)
	t.rows = append(t.rows, r)
	return nil
}

// facts prints the numbers of a change.
func (t *tour) facts(c change, r *row, o outcome, failedOver time.Duration) {
	remark := "expected: none"
	if c.oneIn > 0 {
		r.expected = percent(1, c.oneIn)
		remark = fmt.Sprintf("expected: 1/%d = %s", c.oneIn, r.expected)
	}
	number := func(n, of int) string { return fmt.Sprintf("%-5s %7s", count(n), percent(n, of)) }
	t.out.fact("agreed after", seconds(o.took), c.usual)
	t.out.fact("partitions moved", number(r.moved, r.of), remark)
	t.out.fact("rooms moved", number(r.rooms, len(t.rooms)), "by the hash alone")
	remark = "expected: none"
	if c.gone != "" {
		remark = fmt.Sprintf("expected: the %s of %s", count(tally(homesOf(o.before), c.gone)), c.gone)
	}
	t.out.fact("pinned moved", number(r.pinned, len(t.parties)), remark)
	if was, is := o.before[bigRoom], o.after[bigRoom]; was != is {
		t.out.fact("the big room", fmt.Sprintf("%s to %s", was.node, name(is.node)), "where there is headroom for it, if anywhere")
	}
	switch left := tally(homesOf(o.after), c.gone); {
	case left > 0:
		t.out.fact("not re-pinned", fmt.Sprintf("%s, after %s", count(left), seconds(failedOver)), "")
	case c.gone != "":
		t.out.fact("re-pinned after", seconds(failedOver), "until the last pin that named it was replaced")
	}
	t.askedAgain()
	t.out.line("")
}

// visited has all people ask for their rooms again, and checks the answers. It runs after
// the agents were observed, because a question for a room repairs its pin.
func (t *tour) visited(ctx context.Context) ([]check, error) {
	checks := []check{samePins(t.parties, t.seen), noOrphans(t.seen)}
	visits, err := t.visit(ctx, t.parties)
	pins := t.seen[0].pins
	return append(checks, oneHome(t.parties, visits, pins), oneHost(t.parties, visits, pins)), err
}

// holdings prints how much each node has, and the difference to before. The note of a node
// is printed once.
func (t *tour) holdings(before []answer) {
	show := onlyPartitions
	switch {
	case len(t.parties) > 0:
		show = andPinned
	case len(t.rooms) > 0:
		show = andRooms
	}
	was, is := before[0], t.seen[0]
	streams := streamsOf(is.pins)
	roomsOf := func(a answer) []lease.NodeID {
		if show == andPinned {
			return homesOf(a.pins)
		}
		return a.placed
	}
	var rows []holding
	for _, n := range t.nodes {
		h := holding{
			node: n.id, partitions: tally(is.owners, n.id), rooms: tally(roomsOf(is), n.id),
			streams: streams[n.id], note: n.note,
		}
		h.morePartitions = h.partitions - tally(was.owners, n.id)
		h.moreRooms = h.rooms - tally(roomsOf(was), n.id)
		if n.state != lease.Left || h.note != "" {
			rows = append(rows, h)
		}
		n.note = ""
	}
	t.out.holdings(rows, show)
}

func homesOf(pins map[string]pin) []lease.NodeID {
	homes := make([]lease.NodeID, 0, len(pins))
	for _, p := range pins {
		homes = append(homes, p.node)
	}
	return homes
}

func tally(owners []lease.NodeID, id lease.NodeID) int {
	n := 0
	for _, owner := range owners {
		if owner == id {
			n++
		}
	}
	return n
}
