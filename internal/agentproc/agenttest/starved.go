package agenttest

import (
	"slices"
	"strings"

	"github.com/roost-cluster/roost/internal/agentproc"
)

// Starved returns a log line which shows that the process, or another one, had no CPU for as long as its
// lease lasts, or "". It ignores lines that contain one of causes, because the test caused them.
func Starved(processes []*agentproc.Process, causes ...string) string {
	// Unless a test causes them, an agent with rooms only logs these when it is starved.
	signs := []string{"own lease expired", `"reason":"expired"`, "store does not answer", "not heard over UDP", "all hostings ended"}
	for _, p := range processes {
		for line := range strings.Lines(p.Log.String()) {
			has := func(text string) bool { return strings.Contains(line, text) }
			if slices.ContainsFunc(signs, has) && !slices.ContainsFunc(causes, has) {
				return line
			}
		}
	}
	return ""
}
