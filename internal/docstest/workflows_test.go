package docstest

import (
	"regexp"
	"strings"
	"testing"
)

// TestWorkflows: a workflow may read the repository, unless one of its jobs says more; an action is named by
// the hash of a commit, because a tag can be moved; and the runs of a job are those of the pages (S8.7).
func TestWorkflows(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^\s+(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^(?:[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml)$`)
	for file, runs := range map[string]string{
		"test.yml": "make test", "release.yml": `scripts/release.sh "$TAG" dist`, "vuln.yml": "make vuln",
	} {
		text := read(t, root+".github/workflows/"+file)
		if !strings.Contains(text, "\npermissions:\n  contents: read\n") {
			t.Errorf("%s may do more than read", file)
		}
		if !strings.Contains(text, "- run: "+runs+"\n") {
			t.Errorf("%s does not run %s", file, runs)
		}
		actions := uses.FindAllStringSubmatch(text, -1)
		if len(actions) == 0 {
			t.Errorf("%s uses nothing", file)
		}
		for _, m := range actions {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s, which is no hash of a commit", file, m[1])
			}
		}
	}
}
