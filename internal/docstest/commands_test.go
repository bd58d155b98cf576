//go:build linux

package docstest

import (
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/internal/leak"
)

// lists has the commands of each page. What one reader does at one sitting is a list of
// its own: other sittings know nothing of what was started there.
var lists = map[string][][]step{
	"README.md":                    readme,
	"CONTRIBUTING.md":              contributing,
	"docs/tutorial.md":             tutorial,
	"docs/sidecar.md":              sidecar,
	"docs/performance.md":          performance,
	"docs/runbooks.md":             runbooks,
	"docs/cli.md":                  help,
	"cmd/roost/testdata/help.txt":  helpOfRoost,
	"cluster/clusterhttp/doc.go":   clusterhttp,
	"deploy/docker/Dockerfile":     dockerfile,
	"deploy/kubernetes/roost.yaml": kubernetes,
	"deploy/systemd/roost.service": systemd,
	"examples/handover/main.go":    handover,
	"examples/presence/main.go":    presence,
	"examples/rooms/main.go":       rooms,
	"examples/strategy/main.go":    strategy,
	"examples/sidecar/server.mjs":  server,
}

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // readers mostly wait
	leak.Main(m)
}

// TestListed: the lists have the commands of the pages, all of them and no others.
func TestListed(t *testing.T) {
	found := pages(t)
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if _, ok := found[name]; !ok {
			t.Errorf("%s has no commands, or is gone", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		p := found[name]
		var listed, has []string
		for _, st := range slices.Concat(lists[name]...) {
			if st.line != "" {
				listed = append(listed, st.line)
			}
		}
		for _, c := range p.commands {
			has = append(has, c.line)
		}
		if diff := cmp.Diff(listed, has); diff != "" {
			t.Errorf("%s: its commands (+) are not those (-) that this package has in its list:\n%s", name, diff)
			continue
		}
		for _, st := range slices.Concat(withPage(lists[name], p)...) {
			if st.line != "" && (st.why == "") == (st.want+st.shows == "") {
				t.Errorf("%s: %s: say either what it prints, on the page or in the list, or why it is not run", name, st.line)
			}
		}
	}
}

func allSteps() (all []step) {
	for _, sittings := range lists {
		all = append(all, slices.Concat(sittings...)...)
	}
	return all
}

// withPage gives each step that says nothing itself what its page shows.
func withPage(sittings [][]step, p page) [][]step {
	var all [][]step
	for _, steps := range sittings {
		steps = slices.Clone(steps)
		for i := range steps {
			if steps[i].line == "" {
				continue
			}
			if steps[i].want+steps[i].why == "" {
				steps[i].shows = p.commands[0].shows
			}
			p.commands = p.commands[1:]
		}
		all = append(all, steps)
	}
	return all
}

// TestCommands: what a page has its reader type does what the page says.
func TestCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take seconds")
	}
	bin := build(t)
	found := pages(t)
	for name, sittings := range lists {
		if len(found[name].commands) != lines(sittings) {
			continue // TestListed says what differs
		}
		for i, steps := range withPage(sittings, found[name]) {
			t.Run(fmt.Sprint(strings.ReplaceAll(name, "/", "_"), ":", i+1), func(t *testing.T) {
				t.Parallel()
				newSitting(t, bin).sit(steps)
			})
		}
	}
}

// build returns the directory of the binary as users get it.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-race=false", "-o", bin+"/roost", root+"cmd/roost").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func lines(sittings [][]step) (n int) {
	for _, st := range slices.Concat(sittings...) {
		if st.line != "" {
			n++
		}
	}
	return n
}
