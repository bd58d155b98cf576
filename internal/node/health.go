package node

import (
	"cmp"
	"fmt"
	"time"
)

// health decides whether the application of this node is unhealthy, from checks of the shell and reports of
// the application. Each source alone can make it unhealthy. An unhealthy node drains: it owns nothing, but
// stays a member and keeps its rooms.
type health struct {
	*Node
	checks  verdict
	reports verdict
	every   time.Duration // when the next report is promised; 0 = none is expected
	until   time.Time     // when the next report is late; zero = it is late already, or none is expected
	tried   bool          // there was a check
}

// How many results in a row change a verdict. A single failed check of a slow application must not move
// partitions, and neither must a single successful check of an unhealthy one. A single late report is enough,
// because its TTL is the timeout that the application chose.
const (
	failuresInARow  = 2
	successesInARow = 2
)

const unchecked = "not checked yet"

// verdict is what a source says about the application.
type verdict struct {
	why   string // the application is unhealthy; "" = it is healthy
	other int    // results in a row that contradict the verdict
}

// note handles a result: why the application is unhealthy, or "". The verdict becomes unhealthy after the
// given number of failures in a row.
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

// begin sets the first verdict. An application that is checked is unhealthy until its first check succeeds.
func (h *health) begin(checked bool) {
	if checked {
		h.checks = verdict{why: unchecked, other: successesInARow - 1}
	}
}

// report notes that the application is healthy, and when its next report is late.
func (h *health) report(now time.Time, every time.Duration) {
	if h.every = every; every == 0 {
		h.reports, h.until = verdict{}, time.Time{}
		return
	}
	h.until = now.Add(every)
	h.reports.note("", 1)
}

// expire notes whether the next report is late.
func (h *health) expire(now time.Time) (late bool) {
	if !due(now, h.until) {
		return false
	}
	h.until = time.Time{}
	h.reports.note(fmt.Sprintf("no report for %v", h.every), 1)
	return true
}

// paused postpones the next report by a pause of this process, which could not receive reports.
func (h *health) paused(d time.Duration) {
	if !h.until.IsZero() {
		h.until = h.until.Add(d)
	}
}

// why returns why the application is unhealthy; "" = it is healthy.
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

// Reported notes that the application is healthy, and promises its next report within the given time. 0 means
// that no report follows.
func (n *Node) Reported(now time.Time, within time.Duration) {
	n.checkLease(now)
	n.health.report(now, within)
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
	h.announce(now)
	if why == "" {
		h.tables.comeBack(now)
	} else {
		h.tables.publish(now)
	}
}
