package clusterhttp

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/tablewire"
)

var updateAPI = flag.Bool("update", false, "rewrite openapi.json from the types")

// call describes one endpoint.
type call struct {
	method, path   string
	tag, id, about string
	params         []parameter
	body           map[string]any // schema; nil: none
	status         int
	answer         any // a value of the body's type, or an eventStream
	problems       []int
}

// eventStream is a response that consists of server-sent events.
type eventStream struct {
	name  string // name of the event's schema
	types []eventType
}

// eventType is a type of events in a stream.
type eventType struct {
	name string // "" for messages, which name no type
	data any    // a value of the data's type
	ids  bool   // the events have ids
}

// parameter is a parameter in the path, in the query or in a header.
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
	wait := parameter{"wait", "how long to wait for all members to agree, such as 500ms. The default is 10s, and the maximum is 10m.", text(20), false}
	node := parameter{"node", "returns only rooms that are pinned to this node", text(64), false}
	limit := parameter{"limit", "maximum number of rooms. The default is 1,000.", whole(1, 10000), false}
	people := whole(0, pinstore.MaxSize)
	demand := map[string]any{
		"size": people, "publishers": people, "subscribers": people, "units": whole(0, 0),
		"prefer": map[string]any{"type": "array", "items": text(128), "maxItems": 8},
		"require": map[string]any{
			"type":                 "object",
			"additionalProperties": map[string]any{"type": "string", "maxLength": 127},
			"maxProperties":        8,
		},
	}
	reservation := maps.Clone(demand)
	reservation["until"] = map[string]any{"type": "string", "format": "date-time"}
	demand["touch"], demand["no_host"] = map[string]any{"type": "boolean"}, map[string]any{"type": "boolean"}
	preferences := []parameter{
		{"size", "number of participants", people, false},
		{"publishers", "number of participants who publish", people, false},
		{"subscribers", "number of participants who only receive", people, false},
		{"units", "cost of the room in units of load", whole(0, 0), false},
		{"prefer", "preferred nodes, as zone:NAME or LABEL:VALUE. List the best preference first, and separate preferences by commas.", text(8 * 129), false},
		{"require", "labels that the node must have, as LABEL=VALUE, separated by commas", text(8 * 129), false},
	}
	last := parameter{lastEventID, "the id of the last event that you received. The stream resumes after this event.", text(64), false}
	scope := parameter{
		"scope",
		"the scope of this node to use instead of all members. With a scope, version and digest describe the scope's table, but in_sync and diverged still describe the agent's table. The response is 404 no_such_scope if this node has no such scope, and 503 empty_scope if no member of the scope can own a partition.",
		text(64), false,
	}
	nothing := object("", map[string]any{})
	cordon := object("id", map[string]any{
		"id":     text(64),
		"for_ms": whole(1, 86_400_000),
		"reason": map[string]any{"type": "string", "maxLength": 128},
	})
	load := object("", map[string]any{
		"units": whole(0, 0),
		"use": map[string]any{
			"type": "object", "additionalProperties": whole(0, 0),
			"minProperties": 1, "maxProperties": cluster.MaxResources,
		},
	})
	load["minProperties"] = 1
	keys := object("", map[string]any{"install": text(44), "use": text(8), "remove": text(8)})
	rooms := object("", map[string]any{"rate": whole(0, maxRate), "deadline_ms": whole(0, int(maxDeadline.Milliseconds()))})
	report := object("to", map[string]any{"to": text(64), "epoch": whole(0, 0)})
	cordon["required"] = []any{"for_ms", "id"}
	return []call{
		{"GET", "/v1/place", "placement", "place", "Returns the owner of a key.", []parameter{key, scope}, nil, 200, Placed{}, []int{400, 404, 503}},
		{
			"GET", "/v1/owners", "placement", "owners", "Returns the best members for a key, with the owner first, and explains the choice of the owner.",
			[]parameter{key, {"n", "number of members. The default is 3.", whole(1, maxOwners), false}, scope},
			nil, 200,
			Ranked{},
			[]int{400, 404, 503},
		},
		{"GET", "/v1/members", "placement", "members", "Returns the live members.", nil, nil, 200, Members{}, []int{400, 503}},
		{"GET", "/v1/partitions", "placement", "partitions", "Returns the owner of each partition, and how evenly the partitions are spread.", []parameter{scope}, nil, 200, Partitions{}, []int{400, 404, 503}},
		{"GET", "/v1/owned", "placement", "owned", "Returns the partitions that this node owns.", []parameter{scope}, nil, 200, Owned{}, []int{400, 404, 503}},
		{"GET", "/v1/stats", "diagnosis", "stats", "Returns the counters and settings of this agent.", nil, nil, 200, Stats{}, []int{400, 503}},
		{
			"GET", "/v1/history", "diagnosis", "history",
			"Returns what this node has seen since its start: the last 200 events of members and partitions, the last 200 of rooms and the store, and a sample for every 10 s of the last half hour.", nil, nil, 200,
			History{},
			[]int{400, 503},
		},
		{
			"GET", "/v1/doctor", "diagnosis", "doctor",
			"Checks this agent and its cluster. For each problem, the response explains what it means and what to do.",
			[]parameter{{"over", "how long the agent waits between its two checks, such as 500ms. The default is 2s, and the maximum is 5s.", text(20), false}},
			nil, 200,
			doctor.Diagnosis{},
			[]int{400, 503},
		},
		{
			"GET", "/v1/events", "placement", "events",
			"Streams changes as server-sent events of the types batch (EventBatch) and moved (MovedBatch). With a scope, the stream has only events of type batch.",
			[]parameter{last, scope},
			nil, 200,
			eventStream{"ChangeEvent", []eventType{{"batch", events.Batch{}, true}, {"moved", affinity.MovedBatch{}, false}}},
			[]int{400, 404, 503},
		},
		{
			"GET", "/v1/table", "placement", "table",
			"Streams the table and the members as server-sent events of type update (TableUpdate). The first event is complete, and later events have only changes.",
			[]parameter{{"keep_alive", "how long the stream can be silent before the agent sends a comment, such as 300ms. The range is 100ms to 1m, and the default is the interval of the agent, usually 15s.", text(20), false}, scope},
			nil, 200,
			eventStream{"TableEvent", []eventType{{"update", tablewire.Update{}, false}}},
			[]int{400, 404, 503},
		},
		{"GET", "/v1/openapi.json", "diagnosis", "openAPI", "Returns the OpenAPI description of this API.", nil, nil, 200, map[string]any{}, nil},
		{
			"POST", "/v1/drain", "node", "drain", "Makes this node release its partitions. With rooms in the body, the node also moves its rooms to other nodes.",
			[]parameter{wait},
			object("", map[string]any{"rooms": rooms}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 501, 503},
		},
		{"POST", "/v1/undrain", "node", "undrain", "Ends a drain, so that this node owns partitions again.", []parameter{wait}, nothing, 200, Changed{}, []int{400, 401, 403, 413, 415, 503}},
		{"POST", "/v1/leave", "node", "leave", "Makes this node leave the cluster. The agent responds before it leaves.", nil, nothing, 202, Changed{}, []int{400, 401, 403, 413, 415, 503}},
		{
			"POST", "/v1/load", "node", "setLoad", "Sets the load that this node reports: its units, the use of its resources, or both.", nil,
			load, 200,
			Changed{},
			[]int{400, 401, 403, 409, 413, 415, 503},
		},
		{
			"POST", "/v1/weight", "node", "setWeight", "Sets the weight of this node.", nil,
			object("weight", map[string]any{"weight": whole(0, 1_000_000)}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 503},
		},
		{
			"POST", "/v1/health", "node", "reportHealth", "Reports that the application of this node is healthy. If the next report does not arrive within ttl_ms, the node drains.", nil,
			object("ttl_ms", map[string]any{"ttl_ms": whole(0, 3_600_000)}), 200,
			Changed{},
			[]int{400, 401, 403, 413, 415, 503},
		},
		{
			"POST", "/v1/cordon", "operation", "cordon", "Keeps a member from owning anything for a limited time, in the view of all members.",
			[]parameter{wait},
			cordon, 200,
			Cordoned{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{
			"DELETE", "/v1/cordon", "operation", "uncordon", "Ends a cordon early.",
			[]parameter{wait},
			object("id", map[string]any{"id": text(64)}), 200,
			Cordoned{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{
			"POST", "/v1/keys", "operation", "changeKeys",
			"Changes the gossip keys of this node by one step. A step installs a key, starts to send with a key, or removes a key.", nil,
			keys, 200,
			Keys{},
			[]int{400, 401, 403, 404, 409, 413, 415, 503},
		},
		{"GET", "/v1/rooms", "rooms", "rooms", "Returns the pinned rooms.", []parameter{node, limit}, nil, 200, Rooms{}, []int{400, 501, 503}},
		{
			"GET", "/v1/rooms/{room}", "rooms", "room", "Returns the node of a room and the reason. If the room is not pinned, returns the node that the room would get.", preferences, nil,
			200,
			RoomDetail{},
			[]int{400, 501, 503},
		},
		{
			"GET", "/v1/rooms/{room}/relays", "rooms", "roomRelays", "Returns the best additional nodes for a room that is too large for one node.",
			slices.Concat(preferences, []parameter{{"n", "number of nodes. The default is 2.", whole(1, maxOwners), false}}),
			nil, 200,
			RoomRelays{},
			[]int{400, 501, 503},
		},
		{"DELETE", "/v1/rooms/{room}", "rooms", "releaseRoom", "Deletes the pin of a room that has ended.", nil, nil, 200, ReleasedRoom{}, []int{400, 401, 403, 404, 409, 501, 503}},
		{
			"POST", "/v1/rooms/{room}/resolve", "rooms", "resolveRoom", "Returns the node of a room, and pins the room if necessary.", nil,
			object("", demand), 200,
			RoomAssignment{},
			[]int{400, 401, 403, 413, 415, 501, 503},
		},
		{
			"POST", "/v1/rooms/{room}/move", "rooms", "moveRoom", "Moves a room to another node.", nil,
			object("to", map[string]any{"to": text(64)}), 200,
			RoomAssignment{},
			[]int{400, 401, 403, 404, 409, 413, 415, 501, 503},
		},
		{
			"POST", "/v1/rooms/{room}/report", "rooms", "reportRoom",
			"Returns the node of a room for a client that has lost its connection to the room's node. If the lost node does not respond, the agent waits for at most a second for confirmation that the node has failed.",
			nil, report, 200,
			RoomAssignment{},
			[]int{400, 401, 403, 404, 413, 415, 501, 503},
		},
		{
			"GET", "/v1/rooms/{room}/follow", "rooms", "followRoom",
			"Streams the node of a room as server-sent events (Directive). Each time the room moves, the stream sends the new node.", nil, nil, 200,
			eventStream{"DirectiveEvent", []eventType{{"", reconnect.Directive{}, false}}},
			[]int{400, 501, 503},
		},
		{
			"PUT", "/v1/rooms/{room}/reservation", "rooms", "reserveRoom",
			"Keeps units of load free for a room until a time at most 24 h ahead, and returns the node of the room. The reservation replaces an earlier one for the room.", nil,
			object("until", reservation), 200,
			RoomAssignment{},
			[]int{400, 401, 403, 409, 413, 415, 501, 503},
		},
		{
			"DELETE", "/v1/rooms/{room}/reservation", "rooms", "cancelReservation", "Ends the reservation of a room early.", nil, nil, 200,
			CancelledReservation{},
			[]int{400, 401, 403, 404, 501, 503},
		},
		{"GET", "/v1/reservations", "rooms", "reservations", "Returns all reservations.", nil, nil, 200, Reservations{}, []int{400, 501, 503}},
		{"GET", "/healthz", "diagnosis", "healthz", "Reports whether the agent is alive, for a liveness probe.", nil, nil, 200, status{}, []int{503}},
		{"GET", "/readyz", "diagnosis", "readyz", "Reports whether this node is ready, for a readiness probe.", nil, nil, 200, status{}, []int{503}},
	}
}

// schemas contains the schemas of types by name.
type schemas map[string]any

var (
	stringer = reflect.TypeFor[encoding.TextMarshaler]()
	duration = reflect.TypeFor[time.Duration]()
)

// of returns the JSON schema of a type.
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
		s[name] = nil // the type may refer to itself
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

// written adds the fields of a struct that has its own JSON encoder.
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
	for _, c := range calls() {
		operation := map[string]any{
			"operationId": c.id, "tags": []any{c.tag}, "summary": c.about, "responses": c.responses(all, problem),
		}
		switch {
		case c.probe():
			operation["security"] = []any{}
		case c.method != http.MethodGet:
			operation["security"] = anyOf("token")
		}
		if c.body != nil {
			operation["requestBody"] = map[string]any{"content": jsonOf(c.body)}
		}
		params := []any{}
		if strings.Contains(c.path, "{room}") {
			params = append(params, parameter{"room", "the name of the room, escaped", text(512), true}.describe("path"))
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
			"description": "The HTTP API of one agent. Every response shows the view of that agent. Fields are added, never removed or renamed.",
			"license":     map[string]any{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"servers": []any{map[string]any{
			"url": "{scheme}://{address}", "description": "the agent on this machine, by default",
			"variables": map[string]any{
				"scheme":  map[string]any{"enum": []any{"http", "https"}, "default": "http"},
				"address": map[string]any{"default": "127.0.0.1:8401", "description": "the address in --http of roost agent"},
			},
		}},
		"security": anyOf("token", "password"),
		"tags": []any{
			tag("placement", "Which node owns what, now and with each change."),
			tag("rooms", "Which node hosts a room. These calls need an agent with a store of pins."),
			tag("node", "What this node reports about itself, and when it takes part."),
			tag("operation", "Changes to the cluster by an operator."),
			tag("diagnosis", "How this agent and its cluster are doing."),
		},
		"paths": paths,
		"components": map[string]any{
			"schemas": map[string]any(all),
			"securitySchemes": map[string]any{
				"token": map[string]any{
					"type": "http", "scheme": "bearer",
					"description": "A token of the agent. An agent without tokens needs none, and other agents usually answer reads without a token.",
				},
				"password": map[string]any{
					"type": "http", "scheme": "basic",
					"description": "A token of the agent as the password of any user, for reads from browsers.",
				},
			},
		},
	}
}

// probe reports whether the call is a probe of an orchestrator, which never needs a token.
func (c call) probe() bool { return c.path == "/healthz" || c.path == "/readyz" }

// anyOf accepts any of these schemes, or none, because the agent's settings decide whether a request needs a token.
func anyOf(schemes ...string) []any {
	var either []any
	for _, s := range schemes {
		either = append(either, map[string]any{s: []any{}})
	}
	return append(either, map[string]any{})
}

func tag(name, about string) map[string]any {
	return map[string]any{"name": name, "description": about}
}

func jsonOf(schema map[string]any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func (p parameter) describe(in string) map[string]any {
	return map[string]any{"name": p.name, "in": in, "description": p.about, "required": p.required, "schema": p.schema}
}

func (c call) responses(all schemas, problem map[string]any) map[string]any {
	good := map[string]any{"description": "Success"}
	if s, ok := c.answer.(eventStream); ok {
		good["description"] = "Success. The body is a sequence of server-sent events, and the schema describes one of them: its fields, with data as parsed JSON."
		good["content"] = map[string]any{"text/event-stream": map[string]any{"schema": s.schema(all)}}
	} else {
		good["content"] = jsonOf(all.of(reflect.TypeOf(c.answer)))
	}
	problems := append(slices.Clone(c.problems), http.StatusRequestHeaderFieldsTooLarge)
	if !c.probe() {
		problems = append(problems, http.StatusUnauthorized, http.StatusForbidden)
	}
	responses := map[string]any{strconv.Itoa(c.status): good}
	for _, status := range problems {
		responses[strconv.Itoa(status)] = map[string]any{"description": http.StatusText(status), "content": jsonOf(problem)}
	}
	return responses
}

// schema adds the schema of one event of the stream. OpenAPI has a field for it (itemSchema) only since 3.2, which
// generators cannot read yet.
func (s eventStream) schema(all schemas) map[string]any {
	var types []any
	for _, e := range s.types {
		properties, required := map[string]any{"data": all.of(reflect.TypeOf(e.data))}, []any{"data"}
		if e.name != "" {
			properties["event"], required = map[string]any{"type": "string", "const": e.name}, append(required, "event")
		}
		if e.ids {
			properties["id"], required = map[string]any{"type": "string"}, append(required, "id")
		}
		types = append(types, map[string]any{"type": "object", "properties": properties, "required": required})
	}
	all[s.name] = types[0]
	if len(types) > 1 {
		all[s.name] = map[string]any{"oneOf": types}
	}
	return map[string]any{"$ref": "#/components/schemas/" + s.name}
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
