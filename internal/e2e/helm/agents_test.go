package helm

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write testdata/agents.json")

// run is how Kubernetes starts the agent of the first pod, and which command it runs before it stops the agent. A test
// in cmd/roost starts and stops an agent in the same way.
type run struct {
	Args, PreStop []string
	Env           map[string]string // ROOST_…
}

// TestAgents: testdata/agents.json contains the runs of all variants of the chart, and of the manifest.
func TestAgents(t *testing.T) {
	runs := map[string]run{
		"manifest":                     runOf(t, manifest(t).agent(t), "127.0.0.1"),
		"manifest, in a pod with IPv6": runOf(t, manifest(t).agent(t), "::1"),
	}
	for name, values := range variants {
		o, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = runOf(t, o.agent(t), "127.0.0.1")
		if name == "a media server" {
			runs[name+", in a pod with IPv6"] = runOf(t, o.agent(t), "::1")
		}
	}
	const file = "testdata/agents.json"
	got, err := json.MarshalIndent(runs, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != string(got) {
		t.Errorf("%s is out of date: go test ./helm -run Agents -update (%v)", file, err)
	}
}

// runOf expands variables, as the kubelet does.
func runOf(t *testing.T, c corev1.Container, ip string) run {
	t.Helper()
	fields := map[string]string{
		"metadata.name":      "calls-0",
		"metadata.namespace": "calls",
		"status.podIP":       ip,
		"metadata.labels['topology.kubernetes.io/zone']": "zone-a",
	}
	values := make(map[string]string)
	expand := func(s string) string {
		for name, value := range values {
			s = strings.ReplaceAll(s, "$("+name+")", value)
		}
		return s
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			values[e.Name] = expand(e.Value)
			continue
		}
		value, ok := fields[e.ValueFrom.FieldRef.FieldPath]
		if !ok {
			t.Errorf("%s is %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
		}
		values[e.Name] = value
	}
	r := run{PreStop: c.Lifecycle.PreStop.Exec.Command, Env: maps.Clone(values)}
	for _, arg := range c.Args {
		r.Args = append(r.Args, expand(arg))
	}
	maps.DeleteFunc(r.Env, func(name, _ string) bool { return !strings.HasPrefix(name, "ROOST_") })
	if text := strings.Join(slices.Concat(r.Args, slices.Collect(maps.Values(r.Env))), " "); strings.Contains(text, "$(") {
		t.Errorf("a variable is not known: %s", text)
	}
	return r
}
