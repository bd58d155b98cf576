package sim

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Accuse has a node tell all others that one of them has ended, which it did not look at.
func (p *Process) Accuse(subject lease.Handle) {
	m, err := lease.Decode(p.kernel.Sync(p.Now()))
	if err != nil {
		panic(err)
	}
	m.Accusations = append(m.Accusations, lease.Accusation{
		Subject: subject, Watcher: p.kernel.Handle(), At: m.Stamp, Evidence: lease.Refused,
	})
	forged := lease.Encode(m)
	for _, other := range p.c.all() {
		if other != p {
			p.c.send(p, other.Addr, forged)
		}
	}
}

// UntilDrain returns how long it takes by this process until the planned drain of a node begins.
func (p *Process) UntilDrain(of *Process) time.Duration {
	return p.kernel.View().Live.Local(drains(of)).Sub(p.Now())
}

func drains(of *Process) lease.Stamp {
	for _, m := range of.kernel.View().Live.Members {
		if string(m.ID) == of.ID {
			return m.Drains
		}
	}
	return 0
}
