package agenttest

import (
	"slices"
	"strings"

	"github.com/roost-cluster/roost/internal/agentproc"
)

// Starved looks for a log line which shows that one of the processes, or another agent in the cluster, got no
// CPU time for as long as a lease lasts. It returns that line, or "" if there is none. Starved ignores lines
// that contain one of causes, because the test itself caused them.
func Starved(processes []*agentproc.Process, causes ...string) string {
	// An agent with rooms logs these messages only if the test causes them or if the agent is starved of CPU
	// time.
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
