package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
)

// evil sets a terminal's title and color, also with the shorter single-byte control characters, and reverses the
// direction of text.
const evil = "\x1b]0;x\x07\x1b[31m\u009b31m\u202e"

// poisoned returns v as decoded JSON, with evil appended to every text that an agent can choose.
func poisoned(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var answer any
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatal(err)
	}
	return poison(answer, "")
}

func poison(v any, field string) any {
	switch v := v.(type) {
	case string:
		if slices.Contains([]string{"digest", "incarnation", "source", "at", "now"}, field) || field == "state" && v == lease.Active.String() {
			return v
		}
		return v + evil
	case []any:
		for i := range v {
			v[i] = poison(v[i], field)
		}
	case map[string]any:
		for k := range v {
			v[k] = poison(v[k], k)
		}
		if counts, ok := v["counts"].(map[string]any); ok {
			counts["of"+evil] = 1
		}
	}
	return v
}

// TestHostileAnswers: no agent can make a command print something that a terminal would act on, in tables, in JSON or
// in problems.
func TestHostileAnswers(t *testing.T) {
	commands := slices.Collect(maps.Values(inJSON))
	commands = slices.DeleteFunc(commands, func(c string) bool {
		return slices.Contains([]string{"watch", "diff OLD NEW", "version"}, c) || strings.HasPrefix(c, "sim ") // tested below, or called without an agent
	})
	harms := func(command string, texts ...string) {
		for _, r := range strings.Join(texts, "") {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Errorf("%s prints %q: %q", command, r, texts)
				return
			}
		}
	}
	well, unwell := fakeagent.New(t), fakeagent.New(t)
	for what, answer := range fakeagent.Healthy() {
		well.Set(what, poisoned(t, answer))
		unwell.Set(what, clusterhttp.Problem{Status: http.StatusConflict, Code: "conflict", Message: "no" + evil})
	}
	for _, command := range commands {
		for _, output := range []string{"table", "json"} {
			for _, f := range []*fakeagent.Agent{well, unwell} {
				_, out, problem := roostIn(t, f.Env, append(strings.Fields(command), "--output", output)...)
				harms(command+" as "+output, out, problem)
			}
		}
	}
	const id = "x" + evil
	b := inBackground(t, well.Env, "watch")
	well.Stream <- events.Batch{Joined: []lease.NodeID{id}, Left: []lease.NodeID{id}, Moved: []events.Move{{From: id, To: id}}}
	b.shows(b.out, "moved")
	b.ends()
	harms("watch", b.out.String(), b.problem.String())
}
