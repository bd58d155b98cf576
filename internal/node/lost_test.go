package node

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// The latest 64 lost addresses are remembered for a day, or until they belong to members again.
func TestLost(t *testing.T) {
	now := at(0)
	var l lost
	l.add(now, []string{"0", "1", "2"})
	l.add(now.Add(time.Hour), []string{"1", "3"})
	for _, tt := range []struct {
		after   time.Duration
		members string
		want    string
	}{
		{time.Hour, "", "0 1 2 3"},
		{time.Hour, "2 x", "0 1 3"},
		{24 * time.Hour, "", "0 1 3"},
		{24*time.Hour + 1, "", "3"},
		{25*time.Hour + 1, "", ""},
	} {
		if got := strings.Join(l.addrs(now.Add(tt.after), strings.Fields(tt.members)), " "); got != tt.want {
			t.Errorf("after %v, with the members %q: %q, want %q", tt.after, tt.members, got, tt.want)
		}
	}
	for i := range 60 {
		l.add(now, []string{strconv.Itoa(i)})
	}
	l.add(now, []string{"a", "b", "c", "d", "e", "f"})
	if all := l.addrs(now, nil); len(all) != maxLost || all[0] != "2" || all[maxLost-1] != "f" {
		t.Errorf("%d are remembered: %v", len(all), all)
	}
}
