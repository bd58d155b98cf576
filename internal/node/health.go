package node

import (
	"cmp"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// health decides whether the application of this node is unhealthy. There are two sources: checks by the
// shell, and reports from the application. Either source alone can make the application unhealthy. The node
// of an unhealthy application drains: it owns nothing, but remains a member and keeps its rooms.
type health struct {
	*Node
	checks  verdict
	reports verdict
	every   time.Duration // time within which the next report is promised; 0 = none is expected
	until   time.Time     // when the next report is late; zero = it is late already, or none is expected
	tried   bool          // there was a check
}

// Number of consecutive results that change a verdict. A single check must not move partitions, because a slow
// application may fail one check, and an unhealthy application may pass one check. A single late report is enough,
// because the application chose the timeout itself.
const (
	failuresInARow  = 2
	successesInARow = 2
)

const unchecked = "not checked yet"

// verdict is the health of the application according to one source.
type verdict struct {
	why   string // why the application is unhealthy; "" = it is healthy
	other int    // consecutive results that contradict the verdict
}

// note handles a result: the reason why the application is unhealthy, or "" if it is healthy. The verdict
// becomes unhealthy after the given number of consecutive failures.
func (v *verdict) note(why string, failures int) {
	if (why == "") == (v.why == "") {
		v.why, v.other = why, 0
		return
	}
	v.other++
	needed := successesInARow
	if why != "" {
		needed = failures
	}
	if v.other >= needed {
		v.why, v.other = why, 0
	}
}

// begin sets the initial verdict. If the application is checked, it is considered unhealthy until its first
// check succeeds.
func (h *health) begin(checked bool) {
	if checked {
		h.checks = verdict{why: unchecked, other: successesInARow - 1}
	}
}

// report records that the application is healthy, and when its next report is late.
func (h *health) report(now time.Time, every time.Duration) {
	if h.every = every; every == 0 {
		h.reports, h.until = verdict{}, time.Time{}
		return
	}
	h.until = now.Add(every)
	h.reports.note("", 1)
}

// expire reports whether the next report is late, and if so, records the failure.
func (h *health) expire(now time.Time) (late bool) {
	if !due(now, h.until) {
		return false
	}
	h.until = time.Time{}
	h.reports.note(fmt.Sprintf("no report for %v", h.every), 1)
	return true
}

// paused extends the deadline of the next report by the length of a pause, because this process could not
// receive reports during the pause.
func (h *health) paused(d time.Duration) {
	if !h.until.IsZero() {
		h.until = h.until.Add(d)
	}
}

// why returns the reason why the application is unhealthy, or "" if it is healthy.
func (h *health) why() string { return cmp.Or(h.checks.why, h.reports.why) }

// Checked reports the result of a check of this node's application.
func (n *Node) Checked(now time.Time, err error) {
	n.checkLease(now)
	why := ""
	if err != nil {
		n.stats.HealthFailures++
		if why = cmp.Or(err.Error(), "no reason given"); n.health.checks.why == unchecked && !n.health.tried {
			why = unchecked // don't log this: an application that starts with this node may fail the first check
		}
	}
	n.health.tried = true
	n.health.checks.note(why, failuresInARow)
}

// Reported records that the application is healthy, and that it promises its next report within the given
// time. If the time is 0, no further report is expected.
func (n *Node) Reported(now time.Time, within time.Duration) {
	n.checkLease(now)
	n.health.report(now, within)
}

// stateHealth announces in this node's record whether the application is unhealthy.
func (h *health) stateHealth() {
	h.set.Update(func(r *lease.Record) { r.Unhealthy = h.why() != "" })
}

// applyHealth drains this node while its application is unhealthy.
func (h *health) applyHealth(now time.Time) {
	if h.expire(now) {
		h.stats.HealthFailures++
	}
	why := h.why()
	if h.life.phase == Over || why == h.life.holds[CauseUnhealthy].Reason || !h.life.holdWhile(now, CauseUnhealthy, why) {
		return
	}
	h.stateHealth()
	h.announce(now)
	if why == "" {
		h.tables.comeBack(now)
	} else {
		h.tables.publish(now)
	}
}
