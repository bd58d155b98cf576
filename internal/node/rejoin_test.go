package node

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The latest 64 losses are remembered, for a day, until they are members again.
func TestLost(t *testing.T) {
	now := at(0)
	var l lost
	l.add(now, numbered(3)) // "0", "1", "2"
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
	l.add(now, numbered(60))
	l.add(now, []string{"a", "b", "c", "d", "e", "f"})
	if all := l.addrs(now, nil); len(all) != maxLost || all[0] != "2" || all[maxLost-1] != "f" {
		t.Errorf("%d are remembered: %v", len(all), all)
	}
}

// dials returns how often the nodes of a network try an address while time passes.
func (w *network) dials(addr string, span time.Duration) (count int) {
	for end := w.now.Add(span); w.now.Before(end); {
		w.run(10 * time.Millisecond)
		for _, id := range w.ids {
			count += len(slices.DeleteFunc(w.last[id].Exchanges, func(x Exchange) bool { return x.Addr != addr || w.stuck[id] }))
		}
	}
	return count
}

// A lost member is tried for a day, by a few of the others in each attempt; a member that
// has left is not tried at all.
func TestTriesLostMembers(t *testing.T) {
	w := newNetwork(t, nil, numbered(30)...)
	w.run(5 * time.Second)
	w.nodes["14"].Leave(w.now)
	w.run(time.Second)
	w.stuck["14"], w.stuck["15"] = true, true
	w.run(10 * time.Second)
	if lost := w.dials("15", 100*time.Second); lost < 10*lostAtOnce*2/3 || lost > 10*lostAtOnce*3/2 {
		t.Errorf("the lost member was tried %d times, want about %d", lost, 10*lostAtOnce)
	}
	if n := w.dials("14", 30*time.Second); n > 0 {
		t.Errorf("a member that left was tried %d times", n)
	}
	delete(w.stuck, "15")
	w.run(30 * time.Second)
	if n := w.dials("15", 30*time.Second); n > 0 {
		t.Errorf("a member was tried %d times", n)
	}
}
