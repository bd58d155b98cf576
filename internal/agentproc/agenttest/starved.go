package agenttest

import (
	"slices"
	"strings"

	"github.com/roost-cluster/roost/internal/agentproc"
)

// Starved returns a line of a log that shows that the process, or another one, had no CPU for as long as its
// lease lasts, or "". Lines with a text of causes come of what the test did.
func Starved(processes []*agentproc.Process, causes ...string) string {
	// An agent with rooms logs these for no other reason but what a test does to it.
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
