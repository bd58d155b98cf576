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
	progress   string // what agents are waited for to do
	oneIn      int    // one of so many partitions is expected to move; 0 for none
	usual      string // what is to be said of the time until all agreed
	checks     func(moves []move, took time.Duration) []check
}

// apply carries a change out and shows what it did.
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
	before := t.seen
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	moves := movesOf(before[0].owners, t.seen[0].owners)
	rooms := movesOf(before[0].placed, t.seen[0].placed)
	r := row{what: c.what, moved: len(moves), of: len(t.seen[0].owners), expected: "none", rooms: len(rooms), agreed: took}
	beside := "expected: none"
	if c.oneIn > 0 {
		r.expected = percent(1, c.oneIn)
		beside = fmt.Sprintf("expected: 1/%d = %s", c.oneIn, r.expected)
	}
	t.holdings(before)
	t.out.fact("agreed after", seconds(took), c.usual)
	t.out.fact("partitions moved", fmt.Sprintf("%-5s %7s", count(r.moved), percent(r.moved, r.of)), beside)
	t.out.fact("rooms moved", fmt.Sprintf("%-5s %7s", count(r.rooms), percent(r.rooms, len(t.rooms))), "")
	t.out.line("")
	checks := append([]check{sameTable(t.seen), oneOwner(t.seen), sameRooms(t.rooms, t.seen)}, c.checks(moves, took)...)
	r.checks, r.held = len(checks), t.conclude(checks...)
	t.rows = append(t.rows, r)
	return nil
}

// holdings prints who owns how much now, and what that is against before. What
// happened to a node is said once.
func (t *tour) holdings(before []answer) {
	was, is := before[0], t.seen[0]
	var rows []holding
	for _, n := range t.nodes {
		h := holding{node: n.id, partitions: tally(is.owners, n.id), rooms: tally(is.placed, n.id), note: n.note}
		h.morePartitions = h.partitions - tally(was.owners, n.id)
		h.moreRooms = h.rooms - tally(was.placed, n.id)
		if n.state != lease.Left || h.note != "" {
			rows = append(rows, h)
		}
		n.note = ""
	}
	t.out.holdings(rows, len(t.rooms) > 0)
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
