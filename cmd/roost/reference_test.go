package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// inJSON has a command line for each command that can answer in JSON.
var inJSON = map[string]string{
	"roost members":        "members",
	"roost keys":           "keys",
	"roost partitions":     "partitions",
	"roost place":          "place k",
	"roost owners":         "owners k",
	"roost rooms":          "rooms",
	"roost reservations":   "reservations",
	"roost history":        "history",
	"roost watch":          "watch",
	"roost doctor":         "doctor --over 1ms",
	"roost plan":           "plan --add node-d",
	"roost diff":           "diff OLD NEW",
	"roost drain":          "drain",
	"roost undrain":        "undrain",
	"roost leave":          "leave",
	"roost weight":         "weight 100",
	"roost cordon":         "cordon node-b --for 1m",
	"roost uncordon":       "uncordon node-b",
	"roost health":         "health --ttl 9s",
	"roost room":           "room r",
	"roost room show":      "room show r",
	"roost room resolve":   "room resolve r",
	"roost room relays":    "room relays r",
	"roost room move":      "room move r node-b",
	"roost room release":   "room release r",
	"roost room reserve":   "room reserve r --units 5 --for 1h",
	"roost room unreserve": "room unreserve r",
	"roost version":        "version",
	"roost sim":            "sim --nodes 3 --for 1s",
	"roost sim rooms":      "sim rooms --trace testdata/day.csv --capacity 100",
}

// notInJSON lists the other commands, and why they don't answer in JSON.
var notInJSON = map[string]string{
	"roost demo":       "it prints a story",
	"roost agent":      "its log has --log-format json",
	"roost proxy":      "its log has --log-format json",
	"roost keygen":     "it prints the key and nothing else",
	"roost top":        "it draws on a terminal",
	"roost completion": "it prints a script", "roost help": "it prints help", "roost exit-codes": "it is a page of help",
}

// TestJSON: every command prints JSON, one object per line, and nothing else.
func TestJSON(t *testing.T) {
	root := new(program).root()
	room, _, _ := root.Find([]string{"room"})
	simulate, _, _ := root.Find([]string{"sim"})
	for _, cmd := range slices.Concat(root.Commands(), room.Commands(), simulate.Commands()) {
		path := cmd.CommandPath()
		_, exempt := notInJSON[path]
		if _, ok := inJSON[path]; ok == exempt {
			t.Errorf("%s: list it in inJSON, or in notInJSON with the reason", path)
		}
	}
	for path := range inJSON {
		for l := range strings.Lines(jsonOf(t, path)) {
			if !json.Valid([]byte(l)) || !strings.HasPrefix(l, "{") {
				t.Errorf("%s prints %q", path, l)
			}
		}
	}
}

// If an agent does not answer, its checks are an empty list, because jq does not iterate over null.
func TestChecksOfNoAnswer(t *testing.T) {
	if out := allOfTown(t, "doctor"); !strings.Contains(out, `"checks":[]`) || strings.Contains(out, `"checks":null`) {
		t.Error(out)
	}
}

// jsonOf runs a command against an agent whose answers have every field set.
func jsonOf(t *testing.T, path string) string {
	t.Helper()
	f := fakeagent.New(t)
	owners := fakeagent.Healthy()["GET /v1/partitions"].(clusterhttp.Partitions)
	owners.Balance.Advice = "raise Partitions"
	f.Set("GET /v1/partitions", owners)
	args := append(strings.Fields(inJSON[path]), "--output", "json")
	after := fakeagent.Partitions(placement.Input{
		Partitions: 64,
		Nodes:      []placement.Node{{ID: "node-a", Weight: 100}, {ID: "node-b", Weight: 100}},
	}, 13)
	for name, table := range map[string]clusterhttp.Partitions{"OLD": owners, "NEW": after} {
		b, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(args, name); i >= 0 {
			args[i] = secretFile(t, string(b))
		}
	}
	want := exitOK
	switch path {
	case "roost watch": // this command runs until it is stopped
		b := inBackground(t, f.Env, args...)
		f.Stream <- fakeagent.Batch()
		b.shows(b.out, "\n")
		b.ends()
		return b.out.String()
	case "roost doctor": // a check with all fields set
		want = exitWarned
	}
	code, out, problem := roostIn(t, f.Env, args...)
	if code != want || out == "" {
		t.Errorf("%s exits with %d, prints %q and %q", path, code, out, problem)
	}
	return out
}

const referenceHead = `# The commands of roost

The texts of ` + "`roost --help`" + ` and ` + "`roost COMMAND --help`" + ` in one place; a test keeps it so. For each
command that takes ` + "`--output json`" + `, one object per line, the fields are listed:
` + "`a.b`" + ` is b in the object a, ` + "`a[].b`" + ` b in each object of the list a, ` + "`a.*`" + ` stands for any name.
Fields are only ever added. The flags of ` + "`roost agent`" + ` are in [settings.md](settings.md).

## Exit codes

`

// TestReference: docs/cli.md contains the help of the commands and the fields of their JSON, so a removed field shows
// up in its diff.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(referenceHead + "```\n" + exitCodeTable() + "\n" + exitCodesTopic().Example + "\n```\n")
	var common cobra.Command
	settings.AddFlags(&common, new(session.Options).Settings())
	b.WriteString("\n## Flags of all commands that speak to an agent\n\n```\n" + common.Flags().FlagUsagesWrapped(100) + "```\n")
	root := new(program).root()
	for _, group := range root.Groups() {
		_, _ = fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && cmd.Name() != "help" && cmd.Name() != "completion" && cmd.Runnable() {
				b.WriteString(pageOf(t, cmd))
				for _, sub := range cmd.Commands() {
					b.WriteString(pageOf(t, sub))
				}
			}
		}
	}
	_, _ = fmt.Fprintf(&b,
		"\n### roost completion\n\n```\n%s\n```\n\nNode ids, rooms and the words that a flag takes are completed, too.\n",
		completionExample)

	golden(t, "../../docs/cli.md", b.String())
}

func pageOf(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n```\n%s\n\n%s\n\n%s\n", cmd.CommandPath(), cmd.Short, cmd.UseLine(), cmd.Long, cmd.Example)
	if flags := ownFlags(cmd); flags != "" && cmd.Name() != "agent" {
		b.WriteString("\n" + flags)
	}
	b.WriteString("```\n")
	if _, ok := inJSON[cmd.CommandPath()]; !ok {
		return b.String()
	}
	fields := fieldsOf(t, jsonOf(t, cmd.CommandPath()))
	_, _ = fmt.Fprintf(&b, "\nJSON: `%s`\n", strings.Join(slices.Sorted(maps.Keys(fields)), "`, `"))
	if cmd.Flags().Lookup("all") == nil {
		return b.String()
	}
	all, also := fieldsOf(t, allOfTown(t, cmd.Name())), "instead"
	if cmd.Name() == "doctor" {
		also = "also"
		maps.DeleteFunc(all, func(f string, _ bool) bool { return fields[f] })
	}
	_, _ = fmt.Fprintf(&b, "\nWith `--all` %s: `%s`\n", also, strings.Join(slices.Sorted(maps.Keys(all)), "`, `"))
	return b.String()
}

// allOfTown runs a command with --all, with JSON as the default output. One of the agents sees fewer members than the
// others and has a finding, and another agent does not answer.
func allOfTown(t *testing.T, command string, more ...string) string {
	t.Helper()
	agents := town(t, 2)
	seedless := healthyStats()
	seedless.Settings.Join = nil
	agents[1].Set("GET /v1/stats", seedless)
	agents[1].Set("GET /v1/members", clusterhttp.Members{
		Self:    "other-001",
		Digest:  1,
		Members: []clusterhttp.Member{{Profile: lease.Profile{ID: "other-001"}, State: lease.Active}},
		Lost:    []clusterhttp.Lost{{Profile: lease.Profile{ID: "node-a"}, Reason: lease.Crashed}},
	})
	agents[2].Set("GET /v1/members", clusterhttp.Problem{Status: http.StatusInternalServerError, Code: "broken", Message: "no answer"})
	args := append([]string{command, "--all", "--output", "json"}, more...)
	if command == "doctor" {
		args = append(args, "--over", "1ms")
	}
	_, out, problem := roostIn(t, agents[0].Env, args...)
	if out == "" {
		t.Fatal(problem)
	}
	return out
}

// fieldsOf returns the names of the fields in JSON lines.
func fieldsOf(t *testing.T, lines string) map[string]bool {
	t.Helper()
	fields := make(map[string]bool)
	for l := range strings.Lines(lines) {
		var v any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatal(err)
		}
		addFields(fields, "", v)
	}
	return fields
}

// ownFlags returns the flags that only some commands have.
func ownFlags(cmd *cobra.Command) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		common := f.Name == "help" ||
			slices.ContainsFunc(new(session.Options).Settings(), func(s settings.Setting) bool { return s.Name == f.Name })
		if !common {
			own.AddFlag(f)
		}
	})
	return own.FlagUsagesWrapped(100)
}

// addFields adds the names of the fields in v. Names that users choose, for example of nodes and labels, become "*".
func addFields(fields map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if strings.HasSuffix(path, "counts.") || strings.HasSuffix(path, "labels.") || strings.HasSuffix(path, "reasons.") {
				name = "*"
			}
			addFields(fields, path+name+".", value)
		}
	case []any:
		for _, value := range v {
			addFields(fields, strings.TrimSuffix(path, ".")+"[].", value)
		}
		if len(v) == 0 {
			fields[strings.TrimSuffix(path, ".")+"[]"] = true
		}
	default:
		fields[strings.TrimSuffix(path, ".")] = true
	}
}

func TestCompletion(t *testing.T) {
	f := fakeagent.New(t)
	f.Set("GET /v1/rooms", clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "room-1"}, {Room: "room-2"}, {Room: "r-evil\x1b[2J"}}})
	for line, want := range map[string]string{
		"members --output ":    "table\njson\n:4\n",
		"agent --network ":     "lan\nwan\nlocal\n:4\n",
		"agent --zone ":        ":4\n",
		"sim --network ":       "lan\nwan\n:4\n",
		"sim --loss ":          ":4\n",
		"agent --config ":      ":0\n", // a file
		"rooms --node node-":   "node-a\nnode-b\nnode-c\n:4\n",
		"plan --remove node-b": "node-b\n:4\n",
		"room resolve r":       "room-1\nroom-2\n:4\n",
		"room move room-1 ":    "node-a\nnode-b\nnode-c\n:4\n",
		"room show room-1 ":    ":4\n",
		"room mo":              "move\tMove a pinned room to another node\n:4\n",
		"doct":                 "doctor\tCheck a cluster as one agent sees it, or as all agents do\n:4\n",
	} {
		words := strings.Split(line, " ")
		code, out, _ := roostIn(t, f.Env, append([]string{"__complete"}, words...)...)
		if code != exitOK || out != want {
			t.Errorf("%q: %d, completes %q, want %q", line, code, out, want)
		}
	}
	f.Env["ROOST_ADDR"] = "127.0.0.1:1"
	if _, out, _ := roostIn(t, f.Env, "__complete", "rooms", "--node", ""); out != ":4\n" {
		t.Errorf("without an agent it completes %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, script, _ := roost(t, "completion", shell)
		if code != exitOK || !strings.Contains(script, "__complete") {
			t.Errorf("%s: %d, %d bytes", shell, code, len(script))
		}
		if shell != "bash" {
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not take it: %v\n%s", shell, err, out)
		}
	}
}
