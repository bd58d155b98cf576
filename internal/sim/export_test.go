package sim

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// ReportFailure makes a node tell all others that a member has ended, although the node did not check this.
func (p *Process) ReportFailure(subject lease.Handle) {
	m, err := lease.Decode(p.core.Sync(p.Now()))
	if err != nil {
		panic(err)
	}
	m.FailureReports = append(m.FailureReports, lease.FailureReport{
		Subject: subject, Watcher: p.core.Handle(), At: m.Stamp, Evidence: lease.Refused,
	})
	forged := lease.Encode(m)
	for _, other := range p.c.all() {
		if other != p {
			p.c.send(p, other.Addr, forged)
		}
	}
}

// UntilDrain returns how long it takes until the planned drain of a node begins, by the clock of this process.
func (p *Process) UntilDrain(of *Process) time.Duration {
	return p.core.View().Live.Local(drains(of)).Sub(p.Now())
}

func drains(of *Process) lease.Stamp {
	for _, m := range of.core.View().Live.Members {
		if string(m.ID) == of.ID {
			return m.Drains
		}
	}
	return 0
}
