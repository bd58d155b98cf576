package placement_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/placement"
)

// anyBuiltin draws a built-in strategy, with any parameters.
func anyBuiltin() *rapid.Generator[placement.Strategy] {
	return rapid.Custom(func(t *rapid.T) placement.Strategy {
		s := rapid.OneOf(
			rapid.SampledFrom([]placement.Strategy{
				placement.Rendezvous(), placement.Modulo(), placement.VnodeRing(), placement.ClassicRing(),
			}),
			rapid.Map(rapid.IntRange(0, 2000), placement.Bounded),
			rapid.Custom(func(t *rapid.T) placement.Strategy {
				return placement.LeastPartitions(rapid.IntRange(-1, 9).Draw(t, "threshold"), rapid.IntRange(-1, 9).Draw(t, "moves"))
			}),
		).Draw(t, "strategy")
		if rapid.Bool().Draw(t, "zones") {
			return placement.Zoned(s)
		}
		return s
	})
}

// ParseStrategy returns a built-in strategy for its name.
func TestParseStrategyNamesItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyBuiltin().Draw(t, "strategy")
		parsed, err := placement.ParseStrategy(s.Name())
		if err != nil || parsed.Name() != s.Name() {
			t.Fatalf("%q: %v, %v", s.Name(), parsed, err)
		}
		nodes := anyNodes(1, 5).Draw(t, "nodes")
		for i := range nodes {
			nodes[i].Weight = min(nodes[i].Weight, 1000) // a ring cannot have more points
			nodes[i].Zone = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone")
		}
		want, got := mustComputeBy(t, s, 16, nodes...), mustComputeBy(t, parsed, 16, nodes...)
		if want.Digest() != got.Digest() {
			t.Fatalf("%q places otherwise", s.Name())
		}
	})
}

func TestParseStrategy(t *testing.T) {
	for name, want := range map[string]string{
		"bounded-rendezvous":       "bounded-rendezvous-125",
		"bounded-rendezvous+zones": "bounded-rendezvous-125+zones",
		"least-partitions":         "least-partitions-1-3",
		"least-partitions+zones":   "least-partitions-1-3+zones",
	} {
		if s, err := placement.ParseStrategy(name); err != nil || s.Name() != want {
			t.Errorf("%q: %v, %v; want %q", name, s, err, want)
		}
	}
	for name, want := range map[string]string{
		"":                           `there is no strategy ""; the strategies are rendezvous, `,
		"Rendezvous":                 `there is no strategy "Rendezvous"`,
		"rendezvous ":                "no strategy",
		"+zones":                     "no strategy",
		"rendezvous+zones+zones":     "no strategy",
		"bounded-rendezvous-":        "no strategy",
		"bounded-rendezvous-1x":      "no strategy",
		"bounded-rendezvous-50":      "out of bounds; the nearest is bounded-rendezvous-100",
		"bounded-rendezvous-0125":    "out of bounds; the nearest is bounded-rendezvous-125",
		"bounded-rendezvous-1001":    "the nearest is bounded-rendezvous-1000",
		"least-partitions-1":         "no strategy",
		"least-partitions-1-":        "no strategy",
		"least-partitions-1-3-4":     "no strategy",
		"least-partitions-0-3":       "the nearest is least-partitions-1-3",
		"least-partitions-1--3":      "the nearest is least-partitions-1-0",
		strings.Repeat("x", 1000000): `"` + strings.Repeat("x", 80) + `"; the strategies are`,
	} {
		s, err := placement.ParseStrategy(name)
		if err == nil || s != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, %v; want %q", name, s, err, want)
		}
	}
}

// ParseStrategy returns an error, or a strategy whose own name leads to the same strategy.
func FuzzParseStrategy(f *testing.F) {
	for _, name := range []string{
		"", "rendezvous", "rendezvous+zones", "+zones", "bounded-rendezvous", "bounded-rendezvous-125",
		"bounded-rendezvous--1", "least-partitions-1-3", "least-partitions-1",
		"least-partitions-9999999999999999999-1",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s, err := placement.ParseStrategy(name)
		if err != nil {
			return
		}
		if again, err := placement.ParseStrategy(s.Name()); err != nil || again.Name() != s.Name() {
			t.Errorf("%q is %q, which is %v, %v", name, s.Name(), again, err)
		}
	})
}
