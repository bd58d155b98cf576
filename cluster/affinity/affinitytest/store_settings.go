package affinitytest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// stating returns settings for a cluster that only this test uses.
func (p *pins) stating(since int64, partitions, cost string) pinstore.Settings {
	return pinstore.Settings{
		Cluster: p.room,
		Since:   since,
		Values:  []pinstore.Setting{{Name: "partitions", Value: partitions}, {Name: "cost", Value: cost}},
	}
}

// agree records settings that must match those of all other users.
func (p *pins) agree(s pinstore.Store, self lease.Incarnation, ttl time.Duration, settings pinstore.Settings) (since int64) {
	p.Helper()
	got, err := s.Agree(p.Context(), self, ttl, settings)
	if err != nil || len(got.Differ) > 0 || (got.Since == 0) != (ttl == 0) {
		p.Fatalf("%v states %v for %v: %+v, %v", self, settings, ttl, got, err)
	}
	return got.Since
}

// differ records settings and checks that exactly one setting differs from the settings of other users. The
// conflicting value must belong to want.By or to a user in by.
func (p *pins) differ(
	s pinstore.Store,
	self lease.Incarnation,
	settings pinstore.Settings,
	want pinstore.Difference,
	by ...lease.Incarnation,
) {
	p.Helper()
	got, err := s.Agree(p.Context(), self, long, settings)
	if len(got.Differ) == 1 && slices.Contains(by, got.Differ[0].By) {
		want.By = got.Differ[0].By
	}
	if err != nil || got.Since != 0 || len(got.Differ) != 1 || got.Differ[0] != want {
		p.Fatalf("%v states %v: %+v, %v; want %+v", self, settings, got, err, want)
	}
}

// The store refuses a user with different settings and names the setting that differs. The store does not
// refuse the other users.
func settingsDiffer(p *pins) {
	mine, other := p.stating(0, "64", "0,1,2"), p.stating(0, "128", "0,1,2")
	since := p.agree(p.a, p.first, long, mine)
	for range 2 {
		p.differ(p.b, p.second, other, pinstore.Difference{Setting: "partitions", Ours: "128", Theirs: "64", By: p.first})
		if again := p.agree(p.a, p.first, long, p.stating(since, "64", "0,1,2")); again != since {
			p.Fatalf("since %d; was since %d", again, since)
		}
	}
	p.differ(p.b, p.second, p.stating(0, "64", "0 1 2"), pinstore.Difference{Setting: "cost", Ours: "0 1 2", Theirs: "0,1,2", By: p.first})
	if joined := p.agree(p.b, p.second, long, mine); joined != since {
		p.Fatalf("agrees since %d; the others since %d", joined, since)
	}
	got, err := p.b.Agree(p.Context(), p.second, long, p.stating(0, "1", "2"))
	if err != nil || len(got.Differ) != 2 || got.Differ[0].Setting != "partitions" || got.Differ[1].Setting != "cost" {
		p.Fatalf("%+v, %v; want two differences, in order", got, err)
	}
}

// Users that agree learn which users the store has refused. A refused user disappears from the list when it
// agrees, removes its settings, or does not repeat them before its TTL expires.
func settingsRefused(p *pins) {
	mine, other := p.stating(0, "64", "0"), p.stating(0, "128", "0")
	refused := func(what string, want ...lease.Incarnation) {
		p.Helper()
		got, err := p.a.Agree(p.Context(), p.first, long, mine)
		if err != nil || !slices.Equal(got.Refused, want) {
			p.Fatalf("%s: refused are %v, %v; want %v", what, got.Refused, err, want)
		}
	}
	state := func(ttl time.Duration, settings pinstore.Settings) {
		p.Helper()
		got, err := p.b.Agree(p.Context(), p.second, ttl, settings)
		if err != nil || len(got.Differ) > 0 && len(got.Refused) > 0 {
			p.Fatalf("%+v, %v", got, err)
		}
	}
	refused("at first")
	trial := other
	trial.Trial = true
	state(long, trial)
	refused("by a trial")
	state(long, other)
	refused("without a trial", p.second)
	state(long, trial)
	refused("by a trial afterwards", p.second)
	state(long, mine)
	refused("with the same settings")
	state(long, other)
	refused("again", p.second)
	state(0, other)
	refused("after its end")
	const short = 200 * time.Millisecond
	state(short, other)
	p.eventually(func() error {
		if got, err := p.a.Agree(p.Context(), p.first, long, mine); err != nil || len(got.Refused) > 0 {
			return fmt.Errorf("still refused: %v, %w", got.Refused, err)
		}
		return nil
	})
}

// If a user omits a setting, the user accepts the value that other users have for it.
func settingsLeftOut(p *pins) {
	some := p.stating(0, "64", "")
	some.Values = some.Values[:1]
	p.agree(p.a, p.first, long, some)
	p.agree(p.b, p.second, long, p.stating(0, "64", "0,1,2"))
	p.agree(p.a, p.first, long, some)
	p.differ(p.a, p.again, p.stating(0, "64", ""), pinstore.Difference{Setting: "cost", Theirs: "0,1,2", By: p.second})
}

// Settings expire with the last user that records them. If that user removes its settings, they disappear immediately.
func settingsEnd(p *pins) {
	mine, other := p.stating(0, "64", ""), p.stating(0, "128", "")
	p.agree(p.a, p.first, long, mine)
	p.agree(p.a, p.again, long, mine)
	p.agree(p.a, p.first, 0, mine)
	p.agree(p.a, p.first, 0, mine)
	p.agree(p.b, p.second, 0, other) // p.second is not a user
	p.differ(p.b, p.second, other, pinstore.Difference{Setting: "partitions", Ours: "128", Theirs: "64", By: p.again}, p.first)
	p.agree(p.a, p.again, 0, mine)
	p.agree(p.b, p.second, long, other)
	p.agree(p.b, p.second, 0, other)

	stated := time.Now()
	p.agree(p.a, p.first, brief, mine)
	p.eventually(func() error {
		got, err := p.b.Agree(p.Context(), p.second, long, other)
		if err == nil && len(got.Differ) > 0 {
			err = errors.New("still stated")
		}
		return err
	})
	p.lasted(stated)
}

// Settings that a user keeps renewing do not expire, no matter how many other users try to record different
// values.
func settingsLast(p *pins) {
	const ttl = 5 * brief
	mine, other := p.stating(0, "64", ""), p.stating(0, "128", "")
	p.eventually(func() error {
		p.agree(p.a, p.first, 0, mine) // the other users have tried to record these values
		p.agree(p.b, p.second, 0, other)
		stated := time.Now()
		p.agree(p.a, p.first, ttl, mine)
		for start := stated; time.Since(start) < 2*ttl; time.Sleep(ttl / 10) {
			got, err := p.b.Agree(p.Context(), p.second, ttl, other)
			switch {
			case time.Since(stated) >= ttl/2:
				return errors.New("this machine is too slow")
			case err != nil || len(got.Differ) == 0:
				p.Fatalf("%+v, %v; want a difference", got, err)
			}
			stated = time.Now()
			p.agree(p.a, p.first, ttl, mine)
		}
		return nil
	})
}

// After the store has lost its data, users that had agreed before win, even if a user that was refused
// records its settings first.
func settingsComeBack(p *pins) {
	since := p.agree(p.a, p.first, long, p.stating(0, "64", ""))
	p.agree(p.a, p.first, 0, p.stating(0, "64", "")) // removes the settings, like a loss of data
	time.Sleep(2 * time.Millisecond)
	late := p.agree(p.b, p.second, long, p.stating(0, "128", ""))
	if late <= since {
		p.Fatalf("since %d; the first since %d", late, since)
	}
	if got := p.agree(p.a, p.first, long, p.stating(since, "64", "")); got != since {
		p.Fatalf("since %d; want %d", got, since)
	}
	for _, claims := range []int64{late, 0, since} {
		p.differ(p.b, p.second, p.stating(claims, "128", ""), pinstore.Difference{Setting: "partitions", Ours: "128", Theirs: "64", By: p.first})
	}
	if got := p.agree(p.b, p.again, long, p.stating(0, "64", "")); got != since {
		p.Errorf("a user that agrees is told %d; want %d", got, since)
	}
}

// Several users can record settings at the same time.
func settingsRace(p *pins) {
	const users = 8
	type answer struct {
		agreed pinstore.Agreed
		err    error
	}
	answers := make(chan answer, users)
	for i := range users {
		s := []pinstore.Store{p.a, p.b}[i%2]
		go func() {
			agreed, err := s.Agree(p.Context(), incarnation(int64(i), "racer", 1), long, p.stating(0, fmt.Sprint(i), ""))
			answers <- answer{agreed, err}
		}()
	}
	won := 0
	for range users {
		a := <-answers
		if a.err != nil {
			p.Fatal(a.err)
		}
		if a.agreed.Since != 0 {
			won++
		}
	}
	if won != 1 {
		p.Errorf("%d of %d users with different settings agree; want 1", won, users)
	}
}
