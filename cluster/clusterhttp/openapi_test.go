package clusterhttp

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/tablewire"
)

var updateAPI = flag.Bool("update", false, "rewrite openapi.json from the types")

// call is one endpoint, for its description.
type call struct {
	method, path, about string
	params              []parameter
	body                map[string]any // schema; nil: none
	status              int
	answer              any // a value of the type of the body; nil: text/event-stream or HTML
	problems            []int
}

// parameter is a parameter: in the path, the query or a header.
type parameter struct {
	name, about string
	schema      map[string]any
	required    bool
}

func text(most int) map[string]any {
	return map[string]any{"type": "string", "minLength": 1, "maxLength": most}
}

func whole(least, most int) map[string]any {
	s := map[string]any{"type": "integer", "minimum": least}
	if most > 0 {
		s["maximum"] = most
	}
	return s
}

func object(required string, properties map[string]any) map[string]any {
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != "" {
		s["required"] = []any{required}
	}
	return s
}

func calls() []call {
	key := parameter{"key", "any text", text(maxKey), true}
	wait := parameter{"wait", "how long to wait for all members to agree, such as 500ms; up to 10m, default 10s", text(20), false}
	node := parameter{"node", "only rooms of this node", text(64), false}
	limit := parameter{"limit", "maximum number of rooms; default 1,000", whole(1, 10000), false}
	people := whole(0, pinstore.MaxSize)
	demand := map[string]any{
		"size": people, "publishers": people, "subscribers": people, "units": whole(0, 0),
		"prefer": map[string]any{"type": "array", "items": text(128), "maxItems": 8},
		"require": map[string]any{
			"type":                 "object",
			"additionalProperties": map[string]any{"type": "string", "maxLength": 127},
			"maxProperties":        8,
		},
		"touch":   map[string]any{"type": "boolean"},
		"no_host": map[string]any{"type": "boolean"},
	}
	preferences := []parameter{
		{"size", "participants", people, false},
		{"publishers", "participants who publish", people, false},
		{"subscribers", "participants who only receive", people, false},
		{"units", "cost", whole(0, 0), false},
		{"prefer", "zone:NAME or LABEL:VALUE, the best first, separated by commas", text(8 * 129), false},
		{"require", "LABEL=VALUE, separated by commas", text(8 * 129), false},
	}
	last := parameter{lastEventID, "the id of the last event of a broken stream: resume after it", text(64), false}
	scope := parameter{
		"scope",
		"a scope of this node, in place of all members: version and digest are then those of the scope's table, in_sync and diverged still those of the agent's table. Unknown: 404 no_such_scope. Without a member that can own anything: 503 empty_scope",
		text(64), false,
	}
	nothing := object("", map[string]any{})
	cordon := object("id", map[string]any{
		"id":     text(64),
		"for_ms": whole(1, 86_400_000),
		"reason": map[string]any{"type": "string", "maxLength": 128},
	})
	keys := object("", map[string]any{"install": text(44), "use": text(8), "remove": text(8)})
	rooms := object("", map[string]any{"rate": whole(0, maxRate), "deadline_ms": whole(0, int(maxDeadline.Milliseconds()))})
	report := object("to", map[string]any{"to": text(64), "epoch": whole(0, 0)})
	cordon["required"] = []any{"for_ms", "id"}
	return []call{
		{"GET", "/v1/place", "The owner of a key.", []parameter{key, scope}, nil, 200, Placed{}, []int{400, 404, 503}},
		{
			"GET", "/v1/owners", "The best members for a key, the owner first, and why.",
			[]parameter{key, {"n", "number of members; default 3", whole(1, maxOwners), false}, scope},
			nil, 200,
			Ranked{},
			[]int{400, 404, 503},
		},
		{"GET", "/v1/members", "The live members.", nil, nil, 200, Members{}, []int{503}},
		{"GET", "/v1/partitions", "The table of owners, and its balance.", []parameter{scope}, nil, 200, Partitions{}, []int{400, 404, 503}},
		{"GET", "/v1/owned", "The partitions of this node.", []parameter{scope}, nil, 200, Owned{}, []int{400, 404, 503}},
		{"GET", "/v1/stats", "The counters of this agent, and its settings.", nil, nil, 200, Stats{}, []int{503}},
		{
			"GET", "/v1/history",
			"What this node saw since its start: the last 200 events, and samples of half an hour.", nil, nil, 200,
			History{},
			[]int{503},
		},
		{
			"GET", "/v1/doctor",
			"What the agent finds wrong with itself and its cluster, what it means and what to do.",
			[]parameter{{"over", "how far apart its two looks are, such as 500ms; up to 5s, default 2s", text(20), false}},
			nil, 200,
			doctor.Diagnosis{},
			[]int{400, 503},
		},
		{
			"GET", "/v1/events",
			"Changes as server-sent events: batch (EventBatch) and moved (MovedBatch); with a scope batch alone.",
			[]parameter{last, scope},
			nil, 200, nil,
			[]int{400, 404, 503},
		},
		{
			"GET", "/v1/table",
			"The table and the members as server-sent events: update (TableUpdate), the first one whole.",
			[]parameter{{"keep_alive", "how long to be silent before a comment, such as 300ms: 100ms to 1m, default 15s", text(20), false}, scope},
			nil, 200, nil,
			[]int{400, 404, 503},
		},
		{"GET", "/v1/openapi.json", "This description.", nil, nil, 200, map[string]any{}, nil},
		{
			"POST", "/v1/drain", "Release the partitions of this node, and move its rooms to others if told so.",
			[]parameter{wait},
			object("", map[string]any{"rooms": rooms}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 501, 503},
		},
		{"POST", "/v1/undrain", "Own partitions again.", []parameter{wait}, nothing, 200, Changed{}, []int{400, 401, 403, 413, 415, 503}},
		{"POST", "/v1/leave", "Leave the cluster; the response comes first.", nil, nothing, 202, Changed{}, []int{400, 401, 403, 413, 415, 503}},
		{
			"POST", "/v1/load", "Report this node's load.", nil,
			object("units", map[string]any{"units": whole(0, 0)}), 200,
			Changed{},
			[]int{400, 401, 403, 409, 413, 415, 503},
		},
		{
			"POST", "/v1/weight", "Set this node's weight.", nil,
			object("weight", map[string]any{"weight": whole(0, 1_000_000)}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 503},
		},
		{
			"POST", "/v1/health", "Report that the application of this node is healthy.", nil,
			object("ttl_ms", map[string]any{"ttl_ms": whole(0, 3_600_000)}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 503},
		},
		{
			"POST", "/v1/cordon", "Have a member own nothing for some time, in the view of all.",
			[]parameter{wait},
			cordon, 200,
			Cordoned{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{
			"DELETE", "/v1/cordon", "End a cordon before its time.",
			[]parameter{wait},
			object("id", map[string]any{"id": text(64)}), 200,
			Cordoned{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{
			"POST", "/v1/keys",
			"Change the gossip keys of this node by one step: install a key, use one to send, or remove one.", nil,
			keys, 200,
			Keys{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{"GET", "/v1/rooms", "The pinned rooms.", []parameter{node, limit}, nil, 200, Rooms{}, []int{400, 501, 503}},
		{
			"GET", "/v1/rooms/{room}", "The node of a room, or the node it would get, and why.", preferences, nil,
			200,
			RoomDetail{},
			[]int{400, 501, 503},
		},
		{
			"GET", "/v1/rooms/{room}/relays", "The best further nodes for a room that is too large for its own.",
			slices.Concat(preferences, []parameter{{"n", "number of nodes; default 2", whole(1, maxOwners), false}}),
			nil, 200,
			RoomRelays{},
			[]int{400, 501, 503},
		},
		{"DELETE", "/v1/rooms/{room}", "Release a room that has ended.", nil, nil, 200, ReleasedRoom{}, []int{400, 401, 403, 404, 409, 501, 503}},
		{
			"POST", "/v1/rooms/{room}/resolve", "The node of a room; pins the room if needed.", nil,
			object("", demand), 200,
			RoomAssignment{},
			[]int{400, 401, 403, 413, 415, 501, 503},
		},
		{
			"POST", "/v1/rooms/{room}/move", "Move a room to another node.", nil,
			object("to", map[string]any{"to": text(64)}), 200,
			RoomAssignment{},
			[]int{400, 401, 403, 404, 409, 413, 415, 501, 503},
		},
		{
			"POST", "/v1/rooms/{room}/report",
			"The node of a room, for a client that has lost it; waits for the confirmation if its node has ended.",
			nil, report, 200,
			RoomAssignment{},
			[]int{400, 401, 403, 404, 413, 415, 501, 503},
		},
		{
			"GET", "/v1/rooms/{room}/follow",
			"Where a room lives, and each node that it gets, as server-sent events (Directive).", nil, nil, 200,
			nil,
			[]int{400, 501, 503},
		},
		{"GET", "/healthz", "Liveness of the agent.", nil, nil, 200, status{}, []int{503}},
		{"GET", "/readyz", "Readiness of this node.", nil, nil, 200, status{}, []int{503}},
	}
}

// schemas collects the schemas of types by their names.
type schemas map[string]any

var (
	stringer = reflect.TypeFor[encoding.TextMarshaler]()
	duration = reflect.TypeFor[time.Duration]()
)

// of returns the schema of the JSON of a type.
func (s schemas) of(t reflect.Type) map[string]any {
	switch {
	case t.Implements(stringer) || reflect.PointerTo(t).Implements(stringer):
		return map[string]any{"type": "string"}
	case t == duration:
		return map[string]any{"type": "integer", "description": "nanoseconds"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return s.ref(t)
	default:
		return map[string]any{"type": "integer"}
	}
}

func (s schemas) ref(t reflect.Type) map[string]any {
	name := t.Name()
	switch {
	case t == reflect.TypeFor[events.Batch]():
		name = "EventBatch"
	case t == reflect.TypeFor[tablewire.Update]():
		name = "TableUpdate"
	case t.PkgPath() == reflect.TypeFor[tablewire.Update]().PkgPath():
		name = "Table" + name
	case t.PkgPath() != reflect.TypeFor[Member]().PkgPath() && (name == "Stats" || name == "Balance"):
		name = strings.ToUpper(t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:][:1]) +
			t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+2:] + name
	}
	if _, done := s[name]; !done {
		s[name] = nil // it may refer to itself
		properties, required := map[string]any{}, []string{}
		if t == reflect.TypeFor[affinity.Moved]() {
			s.written(affinity.Moved{}, properties, &required)
		} else {
			s.fields(t, properties, &required)
		}
		schema := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			slices.Sort(required)
			schema["required"] = required
		}
		s[name] = schema
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

// fields adds the fields of a struct, including those of embedded structs.
func (s schemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			name = f.Name
		}
		schema := s.of(f.Type)
		if strings.Contains(options, "string") {
			schema = map[string]any{"type": "string"}
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}

// written adds the fields of a struct that writes itself as JSON.
func (s schemas) written(zero json.Marshaler, properties map[string]any, required *[]string) {
	var fields map[string]any
	if text, err := zero.MarshalJSON(); err != nil || json.Unmarshal(text, &fields) != nil {
		panic("no JSON object")
	}
	for name, value := range fields {
		*required = append(*required, name)
		properties[name] = map[string]any{"type": "integer"}
		if _, ok := value.(string); ok {
			properties[name] = map[string]any{"type": "string"}
		}
	}
}

func document() map[string]any {
	all := schemas{}
	paths := map[string]any{}
	problem := all.of(reflect.TypeFor[Problem]())
	all.of(reflect.TypeFor[events.Batch]())
	all.of(reflect.TypeFor[affinity.MovedBatch]())
	all.of(reflect.TypeFor[tablewire.Update]())
	all.of(reflect.TypeFor[reconnect.Directive]())
	for _, c := range calls() {
		operation := map[string]any{"summary": c.about, "responses": c.responses(all, problem)}
		if c.method != http.MethodGet {
			operation["security"] = []any{map[string]any{"token": []any{}}, map[string]any{}}
		}
		if c.body != nil {
			operation["requestBody"] = map[string]any{"content": jsonOf(c.body)}
		}
		params := []any{}
		if strings.Contains(c.path, "{room}") {
			params = append(params, parameter{"room", "its name, escaped", text(512), true}.describe("path"))
		}
		for _, p := range c.params {
			in := "query"
			if p.name == lastEventID {
				in = "header"
			}
			params = append(params, p.describe(in))
		}
		if len(params) > 0 {
			operation["parameters"] = params
		}
		item, _ := paths[c.path].(map[string]any)
		if item == nil {
			item = map[string]any{}
			paths[c.path] = item
		}
		item[strings.ToLower(c.method)] = operation
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "roost agent", "version": "1",
			"description": "The owner of each key, as one agent sees it. Fields are added, never removed or renamed.",
		},
		"paths": paths,
		"components": map[string]any{
			"schemas":         map[string]any(all),
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}},
		},
	}
}

func jsonOf(schema map[string]any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func (p parameter) describe(in string) map[string]any {
	return map[string]any{"name": p.name, "in": in, "description": p.about, "required": p.required, "schema": p.schema}
}

func (c call) responses(all schemas, problem map[string]any) map[string]any {
	good := map[string]any{"description": "as asked"}
	if c.answer != nil {
		good["content"] = jsonOf(all.of(reflect.TypeOf(c.answer)))
	} else {
		good["content"] = map[string]any{"text/event-stream": map[string]any{"schema": map[string]any{"type": "string"}}}
	}
	responses := map[string]any{strconv.Itoa(c.status): good}
	for _, status := range append(slices.Clone(c.problems), http.StatusRequestHeaderFieldsTooLarge) {
		responses[strconv.Itoa(status)] = map[string]any{"description": http.StatusText(status), "content": jsonOf(problem)}
	}
	return responses
}

// The description matches the types, and has exactly the endpoints of the handler.
func TestOpenAPI(t *testing.T) {
	want, err := json.MarshalIndent(document(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *updateAPI {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		openAPI = want
	}
	if diff := cmp.Diff(string(want), string(openAPI)); diff != "" {
		t.Errorf("openapi.json does not match the types; run with -update (-want +got):\n%s", diff)
	}
	source, err := os.ReadFile("handler.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls() {
		if pattern := `"` + c.method + " " + c.path + `"`; !bytes.Contains(source, []byte(pattern)) {
			t.Errorf("handler.go does not serve %s", pattern)
		}
	}
	served := bytes.Count(source, []byte("a.mux.HandleFunc(")) // the page is served by mux.Handle
	if described := len(calls()); described != served {
		t.Errorf("handler.go serves %d endpoints, %d are described", served, described)
	}
}
