package placement_test

import (
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// A name is an error, or belongs to a strategy that has a name with the same meaning.
func FuzzParseStrategy(f *testing.F) {
	for _, name := range []string{"", "rendezvous", "rendezvous+zones", "+zones", "bounded-rendezvous", "bounded-rendezvous-125", "bounded-rendezvous--1", "least-partitions-1-3", "least-partitions-1", "least-partitions-9999999999999999999-1"} {
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
