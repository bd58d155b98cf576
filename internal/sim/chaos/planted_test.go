package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// bug is a mistake in the code of the nodes that the schedules have to find.
type bug struct {
	name  string
	edits []edit
	soon  bool // one of the first seeds finds it
}

// edit replaces a text that occurs once in a file.
type edit struct{ file, old, new string }

// bugs are planted into a single copy of the code. The released code has no trace of them. planted(name) reports
// whether this bug is enabled.
var bugs = []bug{
	{name: "a heartbeat renews without a later stamp", edits: []edit{
		{
			"lease/table.go", `(!known.precedes(b) && b.renewed() <= known.at)`,
			`(!known.precedes(b) && b.renewed() <= known.at && !planted("a heartbeat renews without a later stamp"))`,
		},
		{"lease/rows.go", "	r.update(known, b, clock)\n	if known.status != live {", `	r.update(known, b, clock)
	if planted("a heartbeat renews without a later stamp") {
		known.at = r.time.at(now)
	}
	if known.status != live {`},
	}},
	{name: "an age is rounded up", soon: true, edits: []edit{{
		"lease/ages.go", "		if level == unknownAge {", `		if planted("an age is rounded up") && level != unknownAge {
			level--
		}
		if level == unknownAge {`,
	}}},
	{name: "an age forgets how old the message is", soon: true, edits: []edit{{
		"lease/ages.go", "		a.applyBucket(m.Stamp, b,", `		stamp := m.Stamp
		if planted("an age forgets how old the message is") {
			stamp = a.time.at(now)
		}
		a.applyBucket(stamp, b,`,
	}}},
	{name: "a fence is skipped", soon: true, edits: []edit{{
		"internal/node/rejoin.go", "	r.life.fence()\n	r.join.stop()", `	if planted("a fence is skipped") {
		r.renew(now)
		return
	}
	r.life.fence()
	r.join.stop()`,
	}}},
	{name: "an old heartbeat revives an ended lease", edits: []edit{{
		"lease/failures.go", `return at-known.at > 2*f.params.tick()`,
		`return at-known.at > 2*f.params.tick() || planted("an old heartbeat revives an ended lease")`,
	}}},
	{name: "a leave message is not relayed", edits: []edit{
		{"lease/table.go", `		if e.left() {`, `		if e.left() && !planted("a leave message is not relayed") {`},
		{
			"lease/table.go", `return e.status == live || e.left()`,
			`return e.status == live || (e.left() && !planted("a leave message is not relayed"))`,
		},
	}},
	{name: "members that are not active own partitions", soon: true, edits: []edit{{
		"lease/view.go", `return m.State == Active && m.Weight > 0`,
		`return (m.State == Active || planted("members that are not active own partitions")) && m.Weight > 0`,
	}}},
	{name: "a watcher that reads seldom misses a loss in between", soon: true, edits: []edit{{
		"events/diff.go", `		if was == is {`, `		if was == is || (was != 0 && is != 0 && planted("a watcher that reads seldom misses a loss in between")) {`,
	}}},
	{name: "one watcher confirms a failure", edits: []edit{{
		"lease/failures.go", `return all >= enough || refusals`,
		`return all >= enough || (all > 0 && planted("one watcher confirms a failure")) || refusals`,
	}}},
	{name: "a suspect is reported unasked", edits: []edit{{
		"internal/node/watch.go", `		case s.asked < questions ||`, `		case s.asked < questions && !planted("a suspect is reported unasked") ||`,
	}}},
	{name: "a join is believed without a challenge", edits: []edit{{
		"lease/present.go", `	case !behind && (e.Answered || p.isRunning(now, m.From)):`,
		`	case planted("a join is believed without a challenge"), !behind && (e.Answered || p.isRunning(now, m.From)):`,
	}}},
	{name: "a handoff trusts equal digests", soon: true, edits: []edit{{
		"internal/node/handoff.go", "	h.state.Tick()\n", `	h.state.Tick()
	if planted("a handoff trusts equal digests") && h.set.Differing(TableDigest(h.tables.table)) == 0 {
		for _, p := range h.state.Waiting() {
			h.state.Overdue(p)
		}
	}
`,
	}}},
	{name: "a partition is free before its run has returned", soon: true, edits: []edit{{
		"internal/handoff/message.go", "			h.stop(p, t)\n", `			h.stop(p, t)
			if planted("a partition is free before its run has returned") {
				answer.Free = append(answer.Free, p)
			}
`,
	}}},
	{name: "a run that was stopped keeps its rights", soon: true, edits: []edit{{
		"internal/handoff/handoff.go", `stopping, false`, `stopping, t.granted && planted("a run that was stopped keeps its rights")`,
	}}},
	{name: "the end of a cordon is not remembered", edits: []edit{{
		"lease/cordons.go", `		next.Keep = max(next.Until, c.all[i].Keep)`,
		`		if next.Keep = max(next.Until, c.all[i].Keep); planted("the end of a cordon is not remembered") {
			next.Keep = next.Until
		}`,
	}}},
	{name: "a suspected duplicate owns partitions", edits: []edit{{
		"internal/node/lifecycle.go", `	if other != nil {`, `	if other != nil && !planted("a suspected duplicate owns partitions") {`,
	}}},
	{name: "a node that was suspended is not fenced", edits: []edit{{
		"internal/node/node.go", `	if e.Suspended {`, `	if e.Suspended && !planted("a node that was suspended is not fenced") {`,
	}}},
	{name: "one failed check makes a node unhealthy", soon: true, edits: []edit{{
		"internal/node/health.go", `	if why != "" {
		needed = failures`, `	if why != "" && !planted("one failed check makes a node unhealthy") {
		needed = failures
	} else if why != "" {
		needed = 1`,
	}}},
}

// The variables of environment name the bug, and the node that has it; without a node, all nodes do.
const (
	shared = `// Package planted tells the nodes which bug they have.
package planted

import "os"

var bug, on = os.Getenv("PLANTED"), os.Getenv("PLANTED_ON")

// Now is the node that is running.
var Now string

// Is reports whether the running node has a bug.
func Is(name string) bool { return name == bug && (on == "" || on == Now) }
`
	helper = `
import shared "github.com/roost-cluster/roost/internal/planted"

func planted(bug string) bool { return shared.Is(bug) }

func plantedAt(id string) { shared.Now = id }
`
)

// entrances are where a node begins to run.
var entrances = []edit{
	{"internal/node/rejoin.go", "func (n *Node) checkLease(now time.Time) {\n", "func (n *Node) checkLease(now time.Time) {\n	plantedAt(string(n.self))\n"},
	{"internal/node/receive.go", "	if m := n.open(now, message, false)", "	plantedAt(string(n.self))\n	if m := n.open(now, message, false)"},
	{"internal/node/receive.go", "	m := n.open(now, state, true)", "	plantedAt(string(n.self))\n	m := n.open(now, state, true)"},
	{"internal/node/ready.go", "func (n *Node) View() View {\n", "func (n *Node) View() View {\n	plantedAt(string(n.self))\n"},
}

// plant builds this test program with all bugs, and returns its path.
func plant(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string) // what replaces them
	for _, b := range append(slices.Clone(bugs), bug{name: "the entrances", edits: entrances}) {
		for _, e := range b.edits {
			path := filepath.Join(root, e.file)
			if _, ok := files[path]; !ok {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				files[path] = string(text)
			}
			if n := strings.Count(files[path], e.old); n != 1 {
				t.Fatalf("%s: %q is %d times in %s", b.name, e.old, n, e.file)
			}
			files[path] = strings.Replace(files[path], e.old, e.new, 1)
			files[filepath.Join(filepath.Dir(path), "planted.go")] = "package " + filepath.Base(filepath.Dir(path)) + "\n" + helper
		}
	}
	files[filepath.Join(root, "internal", "planted", "planted.go")] = shared
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for path, text := range files {
		overlay.Replace[path] = filepath.Join(dir, fmt.Sprint(len(overlay.Replace), ".go"))
		write(t, overlay.Replace[path], []byte(text))
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), text)
	program = filepath.Join(dir, "chaos")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	failed  = regexp.MustCompile(`seed (\d+) failed: (\w+), after (\S+):(.*)`)
	objects = regexp.MustCompile(`seed (\d+): the auditor objects: (\w+), after (\S+):(.*)`)
)

// The schedules find each planted bug, by an invariant and by a rule of the auditor. Some bugs are found by one of the
// first seeds, the others by make chaos. With the same seeds and without the bug, there is no failure.
func TestPlanted(t *testing.T) {
	program := plant(t)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			seeds := "100"
			if *hunt {
				seeds = "5000"
			} else if !b.soon {
				return
			}
			out, cpu, err := runPlanted(t, program, b.name, "TestSchedules", "-seeds", seeds, "-both", "-jobs", "1")
			f, o := failed.FindStringSubmatch(out), objects.FindStringSubmatch(out)
			if f == nil || o == nil || err == nil {
				t.Fatalf("not found: %s", out)
			}
			t.Logf("| %s | %s, %s | %s, %s |\n%.1f s of CPU time\n%s\n%s", b.name, f[2], f[1], o[2], o[1], cpu.Seconds(), f[4], o[4])
			for _, seed := range slices.Compact([]string{f[1], o[1]}) {
				if out, _, err := runPlanted(t, program, "", "TestSchedules", "-seed", seed); err != nil {
					t.Errorf("the seed fails without the bug, too: %s", out)
				}
			}
		})
	}
}

// The table of bugs in docs/dev/testing.md has a row for each bug, and names rules that the auditor has.
func TestPlantedTable(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, rules := read("docs/dev/testing.md"), read("internal/auditor/doc.go")
	for _, b := range bugs {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(b.name) + ` \| \w+, \d+ \| (\w+), \d+ \|$`).FindStringSubmatch(page)
		if row == nil {
			t.Errorf("the table has no row for: %s", b.name)
		} else if !strings.Contains(rules, "//   - "+row[1]+": ") {
			t.Errorf("%s: the auditor has no rule %s", b.name, row[1])
		}
	}
}

func runPlanted(t *testing.T, program, bug, test string, args ...string) (text string, cpu time.Duration, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append(args, "-test.run", "^"+test+"$")...)
	cmd.Env = append(os.Environ(), "PLANTED="+bug)
	if test == "TestHarm" {
		cmd.Env = append(cmd.Env, "PLANTED_ON="+faulty)
	}
	out, err := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.UserTime(), err
}
