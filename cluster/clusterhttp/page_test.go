package clusterhttp

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// examples has an example for each endpoint: the curl arguments before and after the agent's address.
var examples = map[string][2]string{
	"GET /v1/place":                 {"", "?key=room-17"},
	"GET /v1/owners":                {"", "?key=room-17&n=3"},
	"GET /v1/doctor":                {"", "?over=1s"},
	"GET /v1/events":                {"-N ", ""},
	"GET /v1/table":                 {"-N ", ""},
	"GET /v1/rooms":                 {"", "?node=a"},
	"POST /v1/drain":                {`-d '{"rooms":{"rate":10}}' `, "?wait=5s"},
	"POST /v1/undrain":              {"-d '{}' ", "?wait=5s"},
	"POST /v1/leave":                {"-d '{}' ", ""},
	"POST /v1/weight":               {`-d '{"weight":200}' `, ""},
	"POST /v1/load":                 {`-d '{"units":1200}' `, ""},
	"POST /v1/health":               {`-d '{"ttl_ms":10000}' `, ""},
	"POST /v1/cordon":               {`-d '{"id":"b","for_ms":600000,"reason":"disk errors"}' `, ""},
	"DELETE /v1/cordon":             {`-X DELETE -d '{"id":"b"}' `, ""},
	"POST /v1/keys":                 {`-d '{"use":"9f8e7d6c"}' `, ""},
	"POST /v1/rooms/{room}/resolve": {`-d '{"size":4}' `, ""},
	"POST /v1/rooms/{room}/move":    {`-d '{"to":"b"}' `, ""},
	"POST /v1/rooms/{room}/report":  {`-d '{"to":"b","epoch":1000000000}' `, ""},
	"GET /v1/rooms/{room}":          {"", "?size=4"},
	"GET /v1/rooms/{room}/relays":   {"", "?n=2"},
	"GET /v1/rooms/{room}/follow":   {"-N ", ""},
	"DELETE /v1/rooms/{room}":       {"-X DELETE ", ""},

	"PUT /v1/rooms/{room}/reservation":    {`-X PUT -d '{"units":500,"until":"2026-03-01T11:00:00Z"}' `, ""},
	"DELETE /v1/rooms/{room}/reservation": {"-X DELETE ", ""},
}

const pageHead = `# HTTP API

This page lists the calls of an agent's HTTP API, each with an example. roost agent serves the API at the address in
` + "`--http`" + `. A Go application serves it with package [clusterhttp](%s/cluster/clusterhttp). The documentation of that
package also explains [access, events and errors](%[1]s/cluster/clusterhttp#hdr-Access). Each agent returns the
OpenAPI 3.1 description of its API at ` + "`/v1/openapi.json`" + `. Fields are added, but never removed or renamed.

A test generates this page from the types of the API.
`

// TestPage: docs/http-api.md describes each call, with an example. Another test runs the examples.
func TestPage(t *testing.T) {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, pageHead, "https://pkg.go.dev/github.com/roost-cluster/roost")
	unused := maps.Clone(examples)
	for _, c := range calls() {
		b.WriteString(pageOf(t, c))
		delete(unused, c.method+" "+c.path)
	}
	if len(unused) > 0 {
		t.Errorf("examples of calls that the API does not have: %v", unused)
	}
	const path = "../../docs/http-api.md"
	if *updateAPI {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != b.String() {
		t.Errorf("%s does not match the types; run with -update: %v", path, err)
	}
}

func pageOf(t *testing.T, c call) string {
	t.Helper()
	name := c.method + " " + c.path
	example, ok := examples[name]
	if !ok && (c.method != "GET" || strings.Contains(c.path, "{")) {
		t.Errorf("%s has no example", name)
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", name, c.about)
	address := "127.0.0.1:8401" + strings.ReplaceAll(c.path, "{room}", "room-17") + example[1]
	if strings.ContainsAny(address, "?&") {
		address = "'" + address + "'"
	}
	header := ""
	if c.body != nil {
		header = "-H 'Content-Type: application/json' "
	}
	_, _ = fmt.Fprintf(&b, "```sh\ncurl %s%s%s\n```\n\n", example[0], header, address)
	for _, p := range c.params {
		_, _ = fmt.Fprintf(&b, "- `%s`%s: %s\n", p.name, limits(p.schema, p.required), p.about)
	}
	b.WriteString(bodyOf(c.body, ""))
	if len(c.params) > 0 || c.body != nil {
		b.WriteString("\n")
	}
	b.WriteString(answersOf(c))
	return b.String()
}

// bodyOf lists the fields of a body.
func bodyOf(schema map[string]any, below string) string {
	var b strings.Builder
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field := properties[name].(map[string]any)
		_, _ = fmt.Fprintf(&b, "- `%s%s` in the body%s\n", below, name, limits(field, slices.Contains(required, any(name))))
		b.WriteString(bodyOf(field, below+name+"."))
	}
	return b.String()
}

// limits describes the values that a field or a parameter can have.
func limits(schema map[string]any, required bool) string {
	var parts []string
	if required {
		parts = append(parts, "required")
	}
	switch least, most := schema["minimum"], schema["maximum"]; {
	case most != nil:
		parts = append(parts, fmt.Sprintf("%v to %v", least, most))
	case schema["type"] == "integer":
		parts = append(parts, fmt.Sprintf("%v or more", cmp.Or(least, any(0))))
	case schema["type"] == "array":
		parts = append(parts, fmt.Sprintf("a list of at most %v", schema["maxItems"]))
	case schema["type"] == "boolean":
		parts = append(parts, "true or false")
	}
	if most := schema["maxLength"]; most != nil {
		parts = append(parts, fmt.Sprintf("at most %v bytes", most))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// answersOf describes the responses to a call.
func answersOf(c call) string {
	content := "an object"
	kind := fmt.Sprintf("%T", c.answer)
	kind = kind[strings.LastIndex(kind, ".")+1:]
	all := schemas{}
	if _, ok := c.answer.(eventStream); ok {
		content = "a text/event-stream"
	} else {
		all.of(reflect.TypeOf(c.answer))
	}
	if s, ok := all[kind].(map[string]any); ok {
		properties, _ := s["properties"].(map[string]any)
		content = "an object with `" + strings.Join(slices.Sorted(maps.Keys(properties)), "`, `") + "`"
	}
	text := fmt.Sprintf("A successful call returns %d and %s.", c.status, content)
	if n := len(c.problems); n > 0 {
		text += " A failed call returns "
		for i, status := range c.problems {
			switch {
			case i > 0 && i == n-1:
				text += " or "
			case i > 0:
				text += ", "
			}
			text += strconv.Itoa(status)
		}
		text += "."
	}
	return text + "\n"
}
