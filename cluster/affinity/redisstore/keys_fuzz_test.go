package redisstore

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzPin checks that each value in Redis is either an error, or a valid pin that is still the same after it was
// written and read again.
func FuzzPin(f *testing.F) {
	for _, text := range []string{
		"", "a|1|2|3", "a|1|2|3|", "a|1|2|03|p=1", "a|1|2|3|p|q", "||||",
		"a|18446744073709551615|9007199254740991|0|", "a|1|9007199254740992|0|", "a|1|2|-3|", "ü|1|2|3|",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pin, err := parsePin(text)
		if err != nil {
			return
		}
		if pin.Epoch >= maxEpoch || pin.Size < 0 || pin.Node.Validate() != nil || !strings.HasSuffix(text, "|"+pin.Needs) {
			t.Fatalf("%q is %+v", text, pin)
		}
		again, err := parsePin(fmt.Sprintf("%s|%d|%d|%s", textOf(pin.Incarnation), pin.Epoch, pin.Size, pin.Needs))
		if err != nil || again != pin {
			t.Errorf("%q is %+v, and then %+v, %v", text, pin, again, err)
		}
	})
}
