package docstest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTrackRecord: the commits on the page are in the history. Each row that scripts/track-record.sh repeats
// names a test that the fix contains, the text with which it fails, and, if the test has another name today, also that name.
func TestTrackRecord(t *testing.T) {
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
	}
	history := git("rev-parse", "--is-shallow-repository") == "false" // there is none in an archive of the source code
	in, page := testsByName(t), read(t, docs+"dev/track-record.md")
	for _, m := range regexp.MustCompile("`([0-9a-f]{8})`").FindAllStringSubmatch(page, -1) {
		if history && git("merge-base", "--is-ancestor", m[1], "HEAD") != "" {
			t.Errorf("the history does not contain commit %s", m[1])
		}
	}

	row := regexp.MustCompile("(?m)^\\|.*\\| `([0-9a-f]{8})`[^|]*\\| `(?:-\\S+ )*(\\./\\S+) (Test\\w+)[^`]*`(?:, now `(\\w+)`)? \\| `[^`|]+` \\|$")
	rows := row.FindAllStringSubmatch(page, -1)
	for _, m := range rows {
		fix, folder, name, today := m[1], m[2], m[3], m[4]
		if history && git("grep", "-h", "^func "+name+"(", fix, "--", folder) == "exit status 1" {
			t.Errorf("%s: the commit does not contain %s in %s", fix, name, folder)
		}
		switch {
		case today == "" && in[name] == nil:
			t.Errorf("%s: there is no %s today: name the test that has replaced it", fix, name)
		case today != "" && (in[name] != nil || in[today] == nil):
			t.Errorf("%s: want a former and a present name of a test, got %s and %s", fix, name, today)
		}
	}
	if all := strings.Count(page, "| `./") + strings.Count(page, "| `-"); len(rows) != all || all < 15 {
		t.Errorf("%d of %d rows have a fix, a test and a text", len(rows), all)
	}
}
