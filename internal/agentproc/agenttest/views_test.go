package agenttest

import (
	"slices"
	"strings"
	"testing"
)

// The messages of a log include a store that does not answer, but not a store that was only late for a moment, and no
// line of memberlist.
func TestSaid(t *testing.T) {
	const away, back = "store does not answer; resolving without it", "store answers again"
	for _, c := range []struct{ log, want []string }{
		{[]string{"memberlist", away, back, "member lost", "memberlist"}, []string{"member lost"}},
		{[]string{back, "member lost", away}, []string{"member lost", away}},
		{[]string{away, "member lost", back, away}, []string{"member lost", away}},
	} {
		var log strings.Builder
		for _, msg := range c.log {
			log.WriteString(`{"msg":"` + msg + `","node":"a"}` + "\n")
		}
		if got, err := said(log.String() + `{"msg":"mo`); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.log, got, err, c.want)
		}
	}
}
