package browser

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const api = "../../../cluster/clusterhttp/"

// TestOpenAPI compares the answers that are recorded in the test scripts of clusterhttp with the description of the
// API. Tests of clusterhttp compare the same answers with the real ones.
func TestOpenAPI(t *testing.T) {
	d := readDescription(t)
	checked := 0
	for _, script := range []string{"contract", "errors", "life", "rooms", "scopes"} {
		datadriven.RunTest(t, filepath.Join(api, "testdata", script), func(t *testing.T, c *datadriven.TestData) string {
			status, body, isJSON := strings.Cut(c.Expected, " application/json\n")
			if c.Cmd != "http" || !isJSON {
				return c.Expected
			}
			checked++
			method, target, _ := strings.Cut(strings.Split(c.Input, "\n")[0], " ")
			body = body[strings.Index(body, "{"):] // after the headers
			return c.Expected + d.check(t, method, target, status, strings.ReplaceAll(body, "…", "1"))
		})
	}
	if checked < 100 {
		t.Errorf("the scripts have only %d answers", checked)
	}
}

// description is openapi.json. The compiler rejects fields that it does not mention.
type description struct {
	paths    map[string]any
	compiler *jsonschema.Compiler
}

func readDescription(t *testing.T) description {
	t.Helper()
	text, err := os.Open(api + "openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	doc, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		schema.(map[string]any)["additionalProperties"] = false
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return description{doc.(map[string]any)["paths"].(map[string]any), c}
}

// check returns why an answer does not match the description, or "" if it does.
func (d description) check(t *testing.T, method, target, status, body string) string {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")
	path, operation := d.find(path, strings.ToLower(method))
	if operation == nil {
		return "" // there is no such endpoint, as the answer says
	}
	if _, ok := operation["responses"].(map[string]any)[status]; !ok {
		return "openapi.json has no answer " + status + " for " + method + " " + path + "\n"
	}
	pointer := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + strings.ToLower(method) +
		"/responses/" + status + "/content/application~1json/schema"
	schema, err := d.compiler.Compile("openapi.json#" + (&url.URL{Path: pointer}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = schema.Validate(answer)
	}
	if err != nil {
		return "not as openapi.json says: " + err.Error() + "\n"
	}
	return ""
}

// find returns the path in the description that matches the given path, and the description of a method of this path.
func (d description) find(path, method string) (string, map[string]any) {
	for pattern, item := range d.paths {
		names := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\{room\}`, `[^/]+`)
		if operation, ok := item.(map[string]any)[method]; ok && regexp.MustCompile("^"+names+"$").MatchString(path) {
			return pattern, operation.(map[string]any)
		}
	}
	return "", nil
}
