package affinity

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"pgregory.net/rapid"
)

// aDemand draws a valid demand.
func aDemand(t *rapid.T) (d Demand) {
	count := rapid.IntRange(0, 2000)
	switch rapid.IntRange(0, 3).Draw(t, "way") {
	case 0:
		d.Size = count.Draw(t, "size")
	case 1:
		d.Publishers, d.Subscribers = count.Draw(t, "publishers"), count.Draw(t, "subscribers")
	case 2:
		d.Units = rapid.Int64Range(0, 1<<40).Draw(t, "units")
	}
	name := rapid.SampledFrom([]string{"zone", "region", "a=b", "ü", "a b"})
	for range rapid.IntRange(0, 3).Draw(t, "preferences") {
		d.Prefer = append(d.Prefer, name.Draw(t, "label")+":"+rapid.SampledFrom([]string{"x", "y:z", "&=%"}).Draw(t, "value"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "required") {
		if d.Require == nil {
			d.Require = make(map[string]string)
		}
		d.Require[strings.ReplaceAll(name.Draw(t, "required"), "=", "")] = rapid.SampledFrom([]string{"", "yes", "a=b"}).Draw(t, "as")
	}
	return d
}

// A need can be read back unchanged from a pin, and costs as much as its demand. A need does not become smaller when it
// is joined with another need.
func TestNeed(t *testing.T) {
	r := &Resolver{cfg: Config{}.WithDefaults()}
	rapid.Check(t, func(t *rapid.T) {
		d, other := aDemand(t), aDemand(t)
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		n, m := needOf(d), needOf(other)
		reserved := rapid.Int64Range(0, 3000)
		n.Ahead, m.Ahead = reserved.Draw(t, "reserved"), reserved.Draw(t, "reserved by other")
		p := n.Pin(pinstore.Pin{Epoch: 3})
		heir := capacity.Replacing(p, "50 % full & old")
		if got := capacity.NeedIn(p); got != n || capacity.NeedIn(heir) != n {
			t.Fatalf("%+v is pinned as %d %q, which is %+v", n, p.Size, p.Needs, got)
		}
		_, first := capacity.Replaced(p)
		if why, ok := capacity.Replaced(heir); first || !ok || why != "50 % full & old" {
			t.Fatalf("%q says that it replaces a pin, or %q does not say why", p.Needs, heir.Needs)
		}
		if want := max(1, d.Streams(), n.Ahead); r.cost(n) != want {
			t.Errorf("%v costs %d, want %d", d, r.cost(n), want)
		}
		if left := n.Empty(); left.Size() != 0 || left.Rules != n.Rules || r.cost(left) != max(1, n.Ahead) {
			t.Errorf("%+v without participants is %+v", n, left)
		}
		both := n.Joined(m)
		if r.cost(both) < r.cost(n) && n.Units == 0 && m.Units == 0 {
			t.Errorf("%+v joined by %+v is %+v, and costs less", n, m, both)
		}
		if both.Ahead != max(n.Ahead, m.Ahead) {
			t.Errorf("%d reserved units joined by %d are %d", n.Ahead, m.Ahead, both.Ahead)
		}
		if n.Rules != "" && both.Rules != n.Rules {
			t.Errorf("%q joined by %q is %q", n.Rules, m.Rules, both.Rules)
		}
		if both.Size() < n.Size() || both.Size() > pinstore.MaxSize {
			t.Errorf("%d participants joined by %d are %d", n.Size(), m.Size(), both.Size())
		}
		if got := n.Counted(7).Size(); got != 7 {
			t.Errorf("%+v counted as 7 has %d", n, got)
		}
	})
	for _, c := range []struct {
		d    Demand
		want int64
	}{
		{Demand{}, 1},
		{Demand{Size: 1}, 1},
		{Demand{Size: 50}, 2450},
		{Demand{Publishers: 1, Subscribers: 1000}, 1000},
		{Demand{Publishers: 50}, 2450},
		{Demand{Publishers: 2, Subscribers: 10}, 22},
		{Demand{Subscribers: 10}, 1},
		{Demand{Units: 77}, 77},
	} {
		if got := r.cost(needOf(c.d)); got != c.want {
			t.Errorf("%v costs %d, want %d", c.d, got, c.want)
		}
	}
}

// A new count of a webinar's audience does not turn the webinar into a mesh.
func TestNeedCounted(t *testing.T) {
	webinar := needOf(Demand{Publishers: 1, Subscribers: 1000})
	if got := demandOf(webinar.Counted(1500)); got.Publishers != 1 || got.Subscribers != 1499 {
		t.Errorf("counted as %+v", got)
	}
	if got := webinar.Joined(needOf(Demand{Size: 1})); got != webinar {
		t.Errorf("joined by one: %+v", got)
	}
	if got := demandOf(needOf(Demand{Units: 9}).Counted(4)); got.Units != 9 {
		t.Errorf("counted as %+v", got)
	}
	// Stated publishers remain stated while the room is empty, even in its pin.
	for _, kept := range []func(capacity.Need) capacity.Need{
		func(n capacity.Need) capacity.Need { return n },
		func(n capacity.Need) capacity.Need { return capacity.NeedIn(n.Pin(pinstore.Pin{})) },
	} {
		if got := demandOf(kept(webinar.Counted(0)).Counted(1001)); got.Publishers != 1 || got.Subscribers != 1000 {
			t.Errorf("empty for a while: %+v", got)
		}
		panel := needOf(Demand{Publishers: 10, Subscribers: 100})
		if got := demandOf(kept(panel.Counted(3)).Counted(110)); got.Publishers != 10 || got.Subscribers != 100 {
			t.Errorf("three for a while: %+v", got)
		}
	}
	// Pins of a later release may contain unknown names, which must stay.
	later := capacity.NeedIn(pinstore.Pin{Size: 5, Needs: "colour=red&publishers=2"})
	if got := later.Pin(pinstore.Pin{}); got.Needs != "publishers=2&colour=red" || got.Size != 5 {
		t.Errorf("pinned as %+v", got)
	}
	for _, needs := range []string{"%", "publishers=x", "publishers=-1", "publishers=99999999999999999999", "units=-5", "units=x"} {
		got := capacity.NeedIn(pinstore.Pin{Size: 5, Needs: needs})
		if got.Size() != 5 || got.Publishers < 0 || got.Subscribers < 0 || got.Units != 0 {
			t.Errorf("%q: %+v", needs, got)
		}
	}
}

func TestDemandProblems(t *testing.T) {
	many := make(map[string]string)
	for label := range strings.SplitSeq("abcdefghi", "") {
		many[label] = "x"
	}
	for name, d := range map[string]Demand{
		"two ways": {Size: 3, Units: 4}, "all ways": {Size: 1, Publishers: 1, Units: 1}, "negative": {Subscribers: -1},
		"too many": {Publishers: pinstore.MaxSize, Subscribers: 1}, "units": {Units: -1}, "no value": {Prefer: []string{"zone"}},
		"no label": {Prefer: []string{":x"}}, "preferences": {Prefer: slices.Repeat([]string{"a:b"}, 9)}, "labels": {Require: many},
		"empty": {Require: map[string]string{"": "x"}}, "long": {Require: map[string]string{"a": strings.Repeat("x", 200)}},
	} {
		if err := d.Validate(); !errors.Is(err, ErrDemand) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := Demand{Units: 1 << 62, Prefer: slices.Repeat([]string{"a:" + strings.Repeat("\xff", 126)}, 8), Require: maps.Clone(many)}
	delete(longest.Require, "i")
	for label := range longest.Require {
		longest.Require[label] = strings.Repeat("\xff", 126)
	}
	pin := capacity.Replacing(needOf(longest).Pin(pinstore.Pin{}), hostedTwice)
	if err := longest.Validate(); err != nil || len(pin.Needs) > 8<<10 {
		t.Errorf("%v; %d bytes", err, len(pin.Needs))
	}
}

// A Cost that is out of range counts as the nearest value in range.
func TestCostOutOfRange(t *testing.T) {
	for cost, want := range map[int64]int64{math.MinInt64: 1, -1: 1, 0: 1, 5: 5, math.MaxInt64: math.MaxInt64} {
		r := &Resolver{cfg: Config{Cost: func(Demand) int64 { return cost }}.WithDefaults()}
		agent := new(fencedAgent)
		agent.fence(0)
		s := agent.Snapshot()
		if got := r.request(s, "r", mesh(3)).Cost; got != want {
			t.Errorf("Cost says %d: the room costs %d, want %d", cost, got, want)
		}
		for i, room := range []string{"r", "s"} {
			if _, err := r.hosts.open(&Hosting{room: room, use: use{need: mesh(i)}, lost: make(chan struct{})}, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		all := 2 * want
		if want == math.MaxInt64 {
			all = want
		}
		if _, sum := r.loads(); sum.units != all {
			t.Errorf("Cost says %d: two rooms cost %d, want %d", cost, sum.units, all)
		}
	}
}
