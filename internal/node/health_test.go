package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var errSick = errors.New("sick")

// A single contrary result does not change the verdict, but two in a row do. An application that is checked is
// unhealthy until its first check succeeds.
func TestVerdictOfChecks(t *testing.T) {
	for results, want := range map[string]string{
		"":           "unhealthy",
		"+":          "unhealthy healthy",
		"-":          "unhealthy unhealthy",
		"-++":        "unhealthy unhealthy unhealthy healthy",
		"-+-++":      "unhealthy unhealthy unhealthy unhealthy unhealthy healthy",
		"+-+-+-":     "unhealthy healthy healthy healthy healthy healthy healthy",
		"+--":        "unhealthy healthy healthy unhealthy",
		"+--+-++":    "unhealthy healthy healthy unhealthy unhealthy unhealthy unhealthy healthy",
		"+---++--++": "unhealthy healthy healthy unhealthy unhealthy unhealthy healthy healthy unhealthy unhealthy healthy",
	} {
		var h health
		h.begin(true)
		got := []string{h.verdict()}
		for _, r := range results {
			why := ""
			if r == '-' {
				why = errSick.Error()
			}
			h.checks.note(why, failuresInARow)
			got = append(got, h.verdict())
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%q: %s, want %s", results, all, want)
		}
	}
}

func (h *health) verdict() string {
	if h.why() != "" {
		return "unhealthy"
	}
	return "healthy"
}

// An application that never reports is healthy. Once it has reported, it becomes unhealthy if it is silent for longer
// than the TTL of its latest report, and healthy again after two reports in time.
func TestVerdictOfReports(t *testing.T) {
	for name, tt := range map[string]struct {
		reports     string // "at/ttl …", in ms; the verdict is checked every 10 ms
		pause       [2]int // begin and length
		unhealthyAt string // from–to …
	}{
		"none":                 {"", [2]int{}, ""},
		"in time":              {"0/100 90/100 180/100 280/100 380/100 480/100 580/1000", [2]int{}, ""},
		"silent":               {"0/100", [2]int{}, "100-"},
		"late, then one":       {"0/100 150/100", [2]int{}, "100-"},
		"late, then two":       {"0/100 150/100 200/1000", [2]int{}, "100-200"},
		"always late":          {"0/50 60/50 120/50 180/50 240/50", [2]int{}, "50-"},
		"another TTL":          {"0/500 50/100", [2]int{}, "150-"},
		"reports no more":      {"0/100 90/0", [2]int{}, ""},
		"unhealthy, then none": {"0/100 200/0", [2]int{}, "100-200"},
		"unhealthy, then anew": {"0/100 200/0 300/100 350/1000", [2]int{}, "100-200"},
		"paused":               {"0/100 220/1000", [2]int{50, 150}, ""},
		"paused, and late":     {"0/100 270/1000", [2]int{50, 150}, "250-"},
	} {
		t.Run(name, func(t *testing.T) {
			var h health
			ms := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }
			due := make(map[int]int)
			for r := range strings.FieldsSeq(tt.reports) {
				var at, ttl int
				scan(t, r, "%d/%d", &at, &ttl)
				due[at] = ttl
			}
			got, unhealthy := "", false
			for now := 0; now <= 600; now += 10 {
				if now > tt.pause[0] && now < tt.pause[0]+tt.pause[1] {
					continue
				}
				if tt.pause[1] > 0 && now == tt.pause[0]+tt.pause[1] {
					h.paused(time.Duration(tt.pause[1]) * time.Millisecond)
				}
				if ttl, ok := due[now]; ok {
					h.report(ms(now), time.Duration(ttl)*time.Millisecond)
				}
				h.expire(ms(now))
				if is := h.why() != ""; is != unhealthy {
					if unhealthy = is; unhealthy {
						got = strings.TrimSpace(got + " " + fmt.Sprint(now) + "-")
					} else {
						got += fmt.Sprint(now)
					}
				}
			}
			if got != tt.unhealthyAt {
				t.Errorf("unhealthy %q, want %q", got, tt.unhealthyAt)
			}
		})
	}
}

func scan(t *testing.T, text, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		t.Fatal(err)
	}
}
