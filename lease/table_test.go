package lease

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Inserting several elements together has the same result as inserting them one by one.
func TestInsert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sorted := func(label string) []int {
			return slices.Sorted(slices.Values(rapid.SliceOf(rapid.IntRange(0, 50)).Draw(t, label)))
		}
		all, added := sorted("all"), sorted("added")
		want := slices.Sorted(slices.Values(slices.Concat(all, added)))
		places := make([]int, len(added))
		for i, e := range added {
			places[i], _ = slices.BinarySearch(all, e)
		}
		if got := insert(all, places, added); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
