package lease

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The counts of copies never become negative, however often other nodes confirm the news. Otherwise this news would
// always be sent before all other news.
func TestConfirmedForYears(t *testing.T) {
	for _, sent := range []int32{0, 1 << 20, math.MaxInt32 - 1} {
		v := &vitals{rowsSent: sent, recordsSent: sent, inDigest: true}
		for range 1 << 20 {
			v.acknowledged()
		}
		if v.rowsSent < 1<<16 || v.recordsSent < 1<<16 {
			t.Errorf("from %d copies on: %d rows, %d records", sent, v.rowsSent, v.recordsSent)
		}
	}
}

// If there are many candidates, spread selects those that a sort would put first.
func TestCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spread
		var all []candidate
		for i := range rapid.IntRange(0, 3*maxCandidates).Draw(t, "nodes") {
			c := candidate{
				sent: rapid.Int32Range(-1, 3).Draw(t, "sent"), at: Stamp(rapid.IntRange(0, 3).Draw(t, "at")),
				handle: Handle(rapid.Uint64Range(0, 1<<handleBits-1).Draw(t, "handle")), place: i,
			}
			all = append(all, c)
			s.offer(c)
		}
		slices.SortStableFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(b.at, a.at), cmp.Compare(a.handle, b.handle))
		})
		equal := func(a, b candidate) bool { return a.sent == b.sent && a.at == b.at && a.handle == b.handle }
		if want := all[:min(len(all), maxCandidates)]; !slices.EqualFunc(s.candidates, want, equal) {
			t.Fatalf("selected %v, want %v", s.candidates, want)
		}
	})
}
