package clusterhttp

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// judge holds an answer against the description. What it returns is empty if the
// answer is as described.
func judge(t *testing.T, method, target string, status int, body []byte) string {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")
	c := callOf(method, path)
	if c == nil {
		return "" // no endpoint, and said so
	}
	if status != c.status && !slices.Contains(c.problems, status) {
		return "openapi.json has no answer " + strconv.Itoa(status) + " for " + method + " " + c.path + "\n"
	}
	pointer := "#/paths/" + strings.ReplaceAll(c.path, "/", "~1") + "/" + strings.ToLower(method) +
		"/responses/" + strconv.Itoa(status) + "/content/application~1json/schema"
	schema, err := compiler(t).Compile("openapi.json" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = schema.Validate(answer)
	}
	if err != nil {
		return "not as openapi.json says: " + err.Error() + "\n"
	}
	return ""
}

// compiler reads the description, and forbids what it does not mention.
func compiler(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	components := doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for schema := range maps.Values(components) {
		schema.(map[string]any)["additionalProperties"] = false
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return c
}

func callOf(method, path string) *call {
	for _, c := range calls() {
		if c.method == method && c.path == path {
			return &c
		}
		if before, after, ok := strings.Cut(c.path, "{room}"); ok && c.method == method {
			room, begins := strings.CutPrefix(path, before)
			room, ends := strings.CutSuffix(room, after)
			if begins && ends && room != "" && !strings.Contains(room, "/") {
				return &c
			}
		}
	}
	return nil
}
