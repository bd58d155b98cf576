package events_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestDiff(t *testing.T) {
	tests := map[string]struct {
		steps []step // the test compares the first state with the last
		want  string
	}{
		"acquired, moved from another": {
			[]step{{owners: "ab"}, {owners: "aa"}},
			"+1@2 1:b>a",
		},
		"released, moved to another": {
			[]step{{owners: "aa"}, {owners: "ab"}},
			"-1@1 1:a>b",
		},
		"released comes before acquired": {
			[]step{{owners: "ba"}, {owners: "ab"}},
			"-1@1 +0@2 0:b>a 1:a>b",
		},
		"a refresh is no change": {
			[]step{{owners: "ab", members: "a1 b1"}, {owners: "ab", members: "a1 b1"}},
			"",
		},
		"a move between others": {
			[]step{{owners: "abc"}, {owners: "acc"}},
			"1:b>c",
		},
		"a join that changes no owner": {
			[]step{{owners: "ab", members: "a1 b1"}, {owners: "ab", members: "a1 b1 c1"}},
			"joined:c",
		},
		"a change of owner without a join": {
			[]step{{owners: "ab", members: "a1 b1"}, {owners: "bb", members: "a1 b1"}},
			"-0@1 0:a>b",
		},
		"a leave": {
			[]step{{owners: "bc", members: "a1 b1 c1"}, {owners: "bb", members: "a1 b1"}},
			"1:c>b left:c",
		},
		"a restart": {
			[]step{{members: "a1 b1 c1"}, {members: "a1 b2 c1"}},
			"left:b joined:b",
		},
		"everyone else at once": {
			[]step{{members: "a1 b1 d1"}, {members: "a1 c1 e1"}},
			"left:b left:d joined:c joined:e",
		},
		"lost and regained unseen": {
			[]step{{owners: "aab"}, {owners: "bab"}, {owners: "aab"}},
			"-0@1 +0@3",
		},
		"fenced and back unseen": {
			[]step{{owners: "aab"}, {owners: "aab", fenced: true}, {owners: "aab"}},
			"-0@1 -1@1 +0@3 +1@3",
		},
		"fenced: released, though the table stays": {
			[]step{{owners: "aab"}, {owners: "aab", fenced: true}},
			"-0@1 -1@1",
		},
		"moved away and back is no move": {
			[]step{{owners: "ab"}, {owners: "ac"}, {owners: "ab"}},
			"",
		},
		"gained and lost unseen": {
			[]step{{owners: "b"}, {owners: "a"}, {owners: "b"}},
			"",
		},
		"the first table": {
			[]step{{}, {owners: "ab"}},
			"+0@2 0:>a 1:>b",
		},
		"no owner left": {
			[]step{{owners: "ab"}, {owners: ".."}},
			"-0@1 0:a> 1:b>",
		},
		"more partitions": {
			[]step{{owners: "ab"}, {owners: "abab"}},
			"+2@2 2:>a 3:>b",
		},
		"fewer partitions": {
			[]step{{owners: "abab"}, {owners: "ab"}},
			"-2@1 2:a> 3:b>",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			states := chain(t, tc.steps...)
			last := states[len(states)-1]
			b := events.Diff(states[0], last)
			if got := text(b); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
			if b.News() != (tc.want != "") || b.Full {
				t.Errorf("News() = %v, Full = %v", b.News(), b.Full)
			}
			if b.Version != last.Version || b.Digest != last.Digest() {
				t.Errorf("version %d, digest %x; want those of the later state, %d and %x",
					b.Version, b.Digest, last.Version, last.Digest())
			}
		})
	}
}

func TestDiffOfFirst(t *testing.T) {
	tests := map[string]struct {
		step step
		want string
	}{
		"everything owned, everyone live, nothing moved": {step{owners: "aba", members: "a1 b1"}, "+0@1 +2@1 joined:a joined:b"},
		"nothing": {step{}, ""},
		"fenced":  {step{owners: "aba", members: "a1", fenced: true}, "joined:a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := events.Diff(nil, tc.step.next(t, nil))
			if got := text(b); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
			if !b.Full || !b.News() {
				t.Errorf("Full = %v, News() = %v", b.Full, b.News())
			}
		})
	}
}

// TestBatchJSON: scripts read batches with jq, so the names must stay the same, and an empty list must be encoded as a
// list.
func TestBatchJSON(t *testing.T) {
	states := chain(t, step{owners: "aab", members: "a1 b1"}, step{owners: "baa", members: "a1 c1"})
	b := events.Diff(states[0], states[1])
	b.Digest = 7
	tests := map[string]struct {
		batch events.Batch
		want  string
	}{
		"full": {b, `{"version":2,"digest":"0000000000000007","full":false,` +
			`"released":[{"partition":0,"since":1}],"acquired":[{"partition":2,"since":2}],` +
			`"moved":[{"partition":0,"from":"a","to":"b"},{"partition":2,"from":"b","to":"a"}],` +
			`"left":["b"],"joined":["c"],"changed":[]}`},
		"empty": {events.Diff(nil, step{}.next(t, nil)), `{"version":1,"digest":"0000000000000000","full":true,` +
			`"released":[],"acquired":[],"moved":[],"left":[],"joined":[],"changed":[]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.batch)
			if err != nil || string(got) != tc.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, tc.want)
			}
		})
	}
}

// TestNothingChangedAllocatesNothing: a node publishes a state for every renewed lease, and every watcher compares each
// state, so comparing equal states must not allocate.
func TestNothingChangedAllocatesNothing(t *testing.T) {
	table, members := tableOf(t, "abab"), membersOf(t, "a1 b1")
	old := events.Next(nil, self, table, members, true)
	cur := events.Next(old, self, table, membersOf(t, "a1 b1"), true)
	again := events.Next(cur, self, tableOf(t, "abab"), members, true) // equal, but computed again
	for name, pair := range map[string][2]*events.State{"shared": {old, cur}, "recomputed": {old, again}} {
		if n := testing.AllocsPerRun(100, func() { events.Diff(pair[0], pair[1]) }); n != 0 {
			t.Errorf("%s: Diff allocates %v times", name, n)
		}
	}
	if !events.Same(old.Since(), again.Since()) || !events.Same(old.Members, cur.Members) {
		t.Error("equal states do not share memory, so Diff compares all of it")
	}
	if n := testing.AllocsPerRun(100, func() { old.Owns(placement.Partition(1)) }); n != 0 {
		t.Errorf("Owns allocates %v times", n)
	}
}

// TestDiffOfDetails: Changed contains members whose details changed, except members that joined or restarted. Equal
// details are no change.
func TestDiffOfDetails(t *testing.T) {
	record := func(change func(*lease.Record)) *lease.Record {
		r := &lease.Record{Profile: lease.Profile{Weight: 1, Addr: "a:1", Labels: map[string]string{"role": "x"}}}
		change(r)
		return r
	}
	same := func(*lease.Record) {}
	at := func(members string, details ...events.Detail) *events.State {
		s := events.Next(nil, self, tableOf(t, "ab"), membersOf(t, members), true)
		s.Details = details
		return s
	}
	plain := events.Detail{Record: record(same), State: lease.Active}
	changes := map[string]events.Detail{
		"state":    {plain.Record, lease.Draining},
		"meta":     {record(func(r *lease.Record) { r.Meta = "m" }), lease.Active},
		"flapping": {record(func(r *lease.Record) { r.FlappingUntil = 1 }), lease.Active},
	}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[lease.Profile]()) {
		changes[field.Name] = events.Detail{record(func(r *lease.Record) {
			switch v := reflect.ValueOf(&r.Profile).Elem().Field(i); v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Int64:
				v.SetInt(9)
			case reflect.Uint32, reflect.Uint64:
				v.SetUint(9)
			default:
				v.Set(reflect.ValueOf(map[string]string{"role": "y"}))
			}
		}), lease.Active}
	}
	for name, changed := range changes {
		b := events.Diff(at("a1 b1 c1", plain, plain, plain), at("a1 b1 d1", plain, changed, plain))
		if !slices.Equal(b.Changed, []lease.NodeID{"b"}) || !b.News() {
			t.Errorf("%s: %v", name, b.Changed)
		}
		if b := events.Diff(at("a1 b1", plain, plain), at("a1 b2", plain, changed)); len(b.Changed) > 0 {
			t.Errorf("%s with a restart: %v", name, b.Changed)
		}
	}
	equal := events.Detail{record(same), lease.Active}
	if b := events.Diff(at("a1 b1", plain, plain), at("a1 b1", plain, equal)); b.News() {
		t.Errorf("equal details: %v", b.Changed)
	}
	if b := events.Diff(at("a1 b1", plain, plain), at("a1 b1")); b.News() {
		t.Errorf("no details: %v", b.Changed)
	}
}
