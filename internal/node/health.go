package node

import (
	"errors"
	"fmt"
	"time"
)

// health decides whether the application of this node is unhealthy, by checks of the shell and by
// reports of the application. Each source counts by itself. An unhealthy node drains: it owns
// nothing, stays a member and keeps its rooms.
type health struct {
	*Node
	checks  verdict
	reports verdict
	every   time.Duration // as the latest report promises the next one; 0 = none is expected
	until   time.Time     // when that is late; zero = it is late already, or none is expected
	unsaid  bool          // the application is unhealthy since the start, and the log does not say so yet
}

// How many results in a row change a verdict. One failed check of a slow application must not
// move partitions, and neither must one lucky check of an unhealthy one. A late report is enough:
// its TTL is the timeout that the application chose.
const (
	failuresInARow  = 2
	successesInARow = 2
)

var errUnchecked = errors.New("not checked yet")

// verdict is what one source says of the application.
type verdict struct {
	why   error // that the application is unhealthy; nil = it is healthy
	other int   // results in a row that contradict the verdict
}

// note takes in a result. A failure changes the verdict after the given number in a row.
func (v *verdict) note(err error, failures int) {
	if (err == nil) == (v.why == nil) {
		v.why, v.other = err, 0
		return
	}
	v.other++
	needed := successesInARow
	if err != nil {
		needed = failures
	}
	if v.other >= needed {
		v.why, v.other = err, 0
	}
}

// begin sets the first verdict: an application that is checked is unhealthy until its first
// check succeeds.
func (h *health) begin(checked bool) {
	if checked {
		h.checks, h.unsaid = verdict{why: errUnchecked, other: successesInARow - 1}, true
	}
}

// report notes that the application is healthy, and when its next report is late.
func (h *health) report(now time.Time, every time.Duration) {
	if h.every = every; every == 0 {
		h.reports, h.until = verdict{}, time.Time{}
		return
	}
	h.until = now.Add(every)
	h.reports.note(nil, 1)
}

// expire notes whether the next report is late.
func (h *health) expire(now time.Time) (late bool) {
	if !due(now, h.until) {
		return false
	}
	h.until = time.Time{}
	h.reports.note(fmt.Errorf("no report for %v", h.every), 1)
	return true
}

// paused moves the next report by a pause of this process, which could not receive it.
func (h *health) paused(d time.Duration) {
	if !h.until.IsZero() {
		h.until = h.until.Add(d)
	}
}

// why returns why the application is unhealthy; nil = it is healthy.
func (h *health) why() error {
	if h.checks.why != nil {
		return h.checks.why
	}
	return h.reports.why
}

// Checked reports the result of a check of this node's application.
func (n *Node) Checked(now time.Time, err error) {
	n.checkLease(now)
	second := !errors.Is(n.health.checks.why, errUnchecked)
	n.health.checks.note(err, failuresInARow)
	if err == nil {
		return
	}
	n.stats.HealthFailures++
	if n.health.unsaid && second && n.health.checks.why != nil { // an application that starts with this node may fail the first check
		n.health.logUnhealthy(err)
	}
}

// Reported notes that the application is healthy, and promises its next report within a time; 0 =
// no report follows.
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
	if (why != nil) == h.life.unhealthy || h.life.phase == Over {
		return
	}
	h.life.unhealthy = why != nil
	h.announce(now)
	if why == nil {
		h.unsaid = false
		h.log(Info, "health check passing again")
		h.tables.comeBack(now)
		return
	}
	h.logUnhealthy(why)
	h.tables.publish(now)
}

func (h *health) logUnhealthy(why error) {
	h.unsaid = false
	h.log(Warn, "health check failing; partitions released", "err", why)
}
