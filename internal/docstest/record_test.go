package docstest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTrackRecord: each row of the track record that scripts/track-record.sh repeats has a commit in the history, which contains
// the row's test and is not the first commit, and a text. The test still exists, or the row says which test has replaced it or
// which commit removed it.
func TestTrackRecord(t *testing.T) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	shallow, err := git("rev-parse", "--is-shallow-repository")
	history := err == nil && shallow == "false"
	known := func(commit string) bool {
		_, err := git("merge-base", "--is-ancestor", commit, "HEAD")
		return !history || err == nil
	}

	in := testsByName(t)
	spans := func(cell string) (found []string) {
		for _, m := range span.FindAllStringSubmatch(cell, -1) {
			found = append(found, m[1])
		}
		return found
	}
	rows := 0
	for line := range strings.Lines(read(t, docs+"dev/track-record.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[3], "`") {
			continue
		}
		fix := spans(cells[3])[0]
		if !known(fix) {
			t.Errorf("%s: no such commit in the history", fix)
		}
		shown := spans(cells[4])
		if len(shown) == 0 || !strings.Contains(shown[0], "./") {
			continue // not repeatable
		}
		rows++
		words := strings.Fields(shown[0])
		name, _, _ := strings.Cut(words[len(words)-1], "/")
		if _, err := git("grep", "-q", "^func "+name+"(", fix, "--", words[len(words)-2]); history && err != nil {
			t.Errorf("%s: the commit does not contain %s in %s", fix, name, words[len(words)-2])
		}
		if len(spans(cells[5])) != 1 {
			t.Errorf("%s: the row does not say with which text the test fails", fix)
		}
		later := regexp.MustCompile("(now|gone since) `(\\w+)`").FindStringSubmatch(cells[4])
		switch {
		case later == nil && in[name] == nil:
			t.Errorf("%s: %s does not exist any more, and the row does not say since when", fix, name)
		case later != nil && in[name] != nil:
			t.Errorf("%s: %s still exists", fix, name)
		case later != nil && later[1] == "now" && in[later[2]] == nil:
			t.Errorf("%s: there is no %s", fix, later[2])
		case later != nil && later[1] != "now" && !known(later[2]):
			t.Errorf("%s: no such commit in the history: %s", fix, later[2])
		}
	}
	if rows < 15 {
		t.Errorf("%d rows can be repeated", rows)
	}
}
