package affinity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// Demand describes what a room needs. Demand decides which node a new room gets, but never moves a room.
// Specify the cost with Size, with Publishers and Subscribers, or with Units. Use the zero Demand if you know
// nothing about the room.
type Demand struct {
	// Size is the current or expected number of participants, if each participant publishes to all others. At
	// most pinstore.MaxSize.
	Size int `json:"size,omitempty"`

	// Publishers send to everyone, and Subscribers only receive. For example, a webinar with one speaker and
	// a thousand listeners is {Publishers: 1, Subscribers: 1000}. The sum of Publishers and Subscribers is at
	// most pinstore.MaxSize.
	Publishers  int `json:"publishers,omitempty"`
	Subscribers int `json:"subscribers,omitempty"`

	// Units is the cost of the room. If it is set, Config.Cost is not called.
	Units int64 `json:"units,omitempty"`

	// Prefer is a list of up to 8 zones and labels in descending order of preference, such as "zone:eu-1" and
	// then "region:eu". Of the nodes with headroom, the room gets a node that matches the earliest possible
	// preference. A node that matches no preference is only used if no matching node has headroom.
	Prefer []string `json:"prefer,omitempty"`

	// Require maps up to 8 labels that the room's node must have to their values, such as "recorder" to
	// "yes". The label "zone" stands for the node's zone.
	Require map[string]string `json:"require,omitempty"`
}

const (
	maxRules     = 8
	maxRuleBytes = 128
)

// String returns the cost in d as readable text.
func (d Demand) String() string {
	switch {
	case d.Units > 0:
		return fmt.Sprintf("%d units", d.Units)
	case d.Publishers > 0 || d.Subscribers > 0:
		return fmt.Sprintf("%d publishers and %d subscribers", d.Publishers, d.Subscribers)
	}
	return fmt.Sprintf("%d participants", d.Size)
}

// Validate returns all problems of d as one ErrDemand, or nil.
func (d Demand) Validate() error {
	problems := append(d.ruleProblems(), d.costProblems()...)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDemand, strings.Join(problems, "; "))
}

// costProblems returns the problems of Size, Publishers, Subscribers and Units.
func (d Demand) costProblems() (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	inRange := func(n int) bool { return 0 <= n && n <= pinstore.MaxSize }
	if !inRange(d.Size) {
		problem("%d participants; it must be 0 to %d", d.Size, pinstore.MaxSize)
	}
	if !inRange(d.Publishers) || !inRange(d.Subscribers) || d.Publishers+d.Subscribers > pinstore.MaxSize {
		problem("%d publishers and %d subscribers; they must be 0 to %d together", d.Publishers, d.Subscribers, pinstore.MaxSize)
	}
	if d.Units < 0 {
		problem("%d units; it must not be negative", d.Units)
	}
	if d.isMixed() {
		problem("give a size, or publishers and subscribers, or units, but not several of these")
	}
	return problems
}

// isMixed reports whether d specifies the cost in more than one way.
func (d Demand) isMixed() bool {
	mesh, webinar := d.Size != 0, d.Publishers != 0 || d.Subscribers != 0
	return mesh && webinar || d.Units != 0 && (mesh || webinar)
}

// ruleProblems returns the problems of Prefer and Require.
func (d Demand) ruleProblems() (problems []string) {
	if len(d.Prefer) > maxRules || len(d.Require) > maxRules {
		problems = append(problems, fmt.Sprintf("%d preferences and %d labels; at most %d each", len(d.Prefer), len(d.Require), maxRules))
	}
	for _, preference := range d.Prefer {
		if label, value, _ := strings.Cut(preference, ":"); label == "" || value == "" || len(preference) > maxRuleBytes {
			problems = append(problems,
				fmt.Sprintf("prefer %.140q; it must be zone:NAME or LABEL:VALUE, in at most %d bytes", preference, maxRuleBytes))
		}
	}
	for label, value := range d.Require {
		if label == "" || strings.Contains(label, "=") || len(label)+len(value) >= maxRuleBytes {
			problems = append(problems,
				fmt.Sprintf("require %.140q; it must be a label without =, and its value, in less than %d bytes", label, maxRuleBytes))
		}
	}
	return problems
}

func check(room string, d Demand) error { return errors.Join(CheckName(room), d.Validate()) }

// needOf converts d to a Need, which can be compared and stored in a pin.
func needOf(d Demand) capacity.Need {
	n := capacity.Need{
		Publishers: d.Publishers, Subscribers: d.Subscribers, Units: d.Units,
		Stated: d.Publishers, Split: d.Publishers+d.Subscribers > 0, Rules: capacity.EncodeRules(d.Prefer, d.Require),
	}
	if d.Size > 0 {
		n.Publishers, n.Mesh = d.Size, true
	}
	return n
}

// demandOf returns the cost of n as a Demand.
func demandOf(n capacity.Need) Demand {
	switch {
	case n.Units > 0:
		return Demand{Units: n.Units}
	case n.Mesh:
		return Demand{Size: n.Publishers}
	}
	return Demand{Publishers: n.Publishers, Subscribers: n.Subscribers}
}

// selector returns Config.Selector for a room, if there is one.
func (r *Resolver) selector(room string, n capacity.Need) func(*cluster.Member) bool {
	if r.cfg.Selector == nil {
		return nil
	}
	d := demandOf(n)
	d.Prefer, d.Require = rulesOf(n)
	return func(m *cluster.Member) bool { return r.cfg.Selector(room, d, m) }
}

const (
	countTime = 2 * time.Second  // for all calls of the Counter in a sweep
	countRest = 30 * time.Second // after a failed call
)

// needs returns the needs of rooms. Each size is the greater of the Counter's result and the size in the pin,
// because the Counter may no longer include the participants of the dead node. If the Counter was too slow in
// this sweep or has failed recently, needs only uses the pins, because the rooms are waiting for a new node.
func (w *sweep) needs(ctx context.Context, rooms []pinstore.Entry) []capacity.Need {
	needs := make([]capacity.Need, len(rooms))
	names := make([]string, len(rooms))
	for i, e := range rooms {
		needs[i], names[i] = capacity.NeedIn(e.Pin), e.Room
	}
	since := time.Now()
	if w.cfg.Counter == nil || w.counting >= countTime || since.UnixNano() < w.work.countAgain.Load() {
		return needs
	}
	ctx, cancel := context.WithTimeout(ctx, countTime-w.counting)
	defer cancel()
	counted, err := w.cfg.Counter.Counts(ctx, names)
	w.counting += time.Since(since)
	if err != nil || len(counted) != len(needs) {
		w.work.countAgain.Store(time.Now().Add(countRest).UnixNano())
		w.cfg.Log.Warn("counting participants failed, using the last sizes", "err", err)
		return needs
	}
	for i, n := range counted {
		needs[i] = needs[i].Counted(max(needs[i].Size(), n))
	}
	return needs
}
