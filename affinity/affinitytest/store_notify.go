package affinitytest

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
)

// A fresh result is either followed by a notification when another instance changes the
// pin, or its freshness expires. Each test gets a result in another way, and then another
// instance changes the pin.

// unnoticed bounds how long a stale result may pass for fresh.
const unnoticed = 5 * time.Second

func notifiesClaimed(p *pins) {
	p.notifies(func(s affinity.Store) affinity.Result { return p.do(s, claimOf(p.first)) })
}

func notifiesFound(p *pins) {
	p.claim(p.b, p.second)
	p.notifies(func(s affinity.Store) affinity.Result { return p.do(s, claimOf(p.first)) })
}

func notifiesRefreshed(p *pins) {
	p.claim(p.b, p.first)
	p.notifies(func(s affinity.Store) affinity.Result {
		return p.do(s, affinity.Op{If: affinity.Pin{Incarnation: p.first}, Set: affinity.Pin{Incarnation: p.first, Size: 2}, TTL: long})
	})
}

func notifiesReplaced(p *pins) {
	p.claim(p.b, p.first)
	p.notifies(func(s affinity.Store) affinity.Result {
		return p.do(s, affinity.Op{If: affinity.Pin{Incarnation: p.first}, Set: affinity.Pin{Incarnation: p.second}, TTL: long})
	})
}

func notifiesReleased(p *pins) {
	p.claim(p.b, p.first)
	p.notifies(func(s affinity.Store) affinity.Result {
		return p.do(s, affinity.Op{If: affinity.Pin{Incarnation: p.first}})
	})
}

// notifies runs get twice, so that the second result follows a notification.
func (p *pins) notifies(get func(affinity.Store) affinity.Result) {
	p.Helper()
	s := p.instance()
	notified := make(chan string, 100)
	s.Notify(func(room string) {
		select {
		case notified <- room:
		default: // it must not block
		}
	})
	result := get(s)
	p.changes(notified, result)
	result = p.do(s, affinity.Op{})
	p.changes(notified, result)
}

// changes makes another instance change the pin.
func (p *pins) changes(notified <-chan string, result affinity.Result) {
	p.Helper()
	if result.Fresh < 0 || result.Fresh > long {
		p.Fatalf("fresh for %v; the pin lasts %v", result.Fresh, long)
	}
	for len(notified) > 0 { // of before, or its own change
		<-notified
	}
	start := time.Now()
	pin := result.Pin
	if pin == (affinity.Pin{}) {
		p.claim(p.b, p.again)
	} else {
		p.succeed(p.b, affinity.Op{If: pin, Set: affinity.Pin{Incarnation: p.again}, TTL: long}, p.again)
		if pin.Incarnation == p.again {
			p.succeed(p.b, affinity.Op{If: affinity.Pin{Incarnation: p.again}, Set: affinity.Pin{Incarnation: p.first}, TTL: long}, p.first)
		}
	}
	drain(p.T, notified, p.room, start, result.Fresh)
}

// drain waits for a notification for the room, or for all rooms, or until a result from
// start is no longer fresh.
func drain(t *testing.T, notified <-chan string, room string, start time.Time, fresh time.Duration) {
	t.Helper()
	end := time.NewTimer(min(fresh, unnoticed) - time.Since(start))
	defer end.Stop()
	for {
		select {
		case got := <-notified:
			if got == room || got == "" {
				return
			}
		case <-end.C:
			if fresh > unnoticed {
				t.Fatalf("not notified within %v of a change of what was fresh for %v", unnoticed, fresh)
			}
			return
		}
	}
}
