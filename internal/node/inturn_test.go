package node

import (
	"strconv"
	"testing"
)

// Two lists of seeds of different lengths are both tried to their ends.
func TestSeedsInTurn(t *testing.T) {
	short, long := make([]string, 20), make([]string, 200)
	for i := range long {
		long[i] = strconv.Itoa(i)
	}
	copy(short, long)
	var j join
	tried := make(map[string]bool)
	for range 25 {
		j.inTurn("short", short, 8)
		for _, addr := range j.inTurn("long", long, 8) {
			tried[addr] = true
		}
	}
	if len(tried) != len(long) {
		t.Errorf("%d of %d seeds had their turn", len(tried), len(long))
	}
}
