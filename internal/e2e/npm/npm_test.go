package npm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

const root = "../../../"

func TestMain(m *testing.M) {
	agenttest.Overlap()
	code := m.Run()
	agenttest.Remove()
	_ = os.RemoveAll(tools.dir)
	os.Exit(code)
}

// tools are programs from other projects that the tests run. npm installs them once per test process.
var tools struct {
	once sync.Once
	dir  string
	err  error
	out  []byte
}

// folder returns a new folder with the files of testdata, in which npx and imports find the tools.
func folder(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("npm installs programs")
	}
	tools.once.Do(func() {
		if tools.dir, tools.err = os.MkdirTemp("", "roost-npm-"); tools.err == nil { //nolint:usetesting // for all tests
			tools.out, tools.err = exec.Command("npm", "install", "--prefix", tools.dir, "--ignore-scripts", "--no-audit", "--no-fund", "--silent",
				"@redocly/cli@2.77.0", "openapi-fetch@0.17.0", "openapi-typescript@7.13.0", "typescript@5.9.3").CombinedOutput()
		}
	})
	if tools.err != nil {
		t.Fatalf("npm (scripts/deps.sh installs it): %v\n%s", tools.err, tools.out)
	}
	dir, err := os.MkdirTemp(tools.dir, "test-") //nolint:usetesting // below the programs
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile(root + "cluster/clusterhttp/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), api, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program in dir, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	if own := filepath.Join(tools.dir, "node_modules/.bin", name); !strings.Contains(name, "/") {
		if _, err := os.Stat(own); err == nil {
			name = own
		}
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", filepath.Base(name), args, err, out, &problems)
	}
	return string(out)
}

// generate makes api.d.ts from openapi.json, and compiles a program that uses it.
func generate(t *testing.T, dir, program string) {
	t.Helper()
	run(t, dir, "openapi-typescript", "openapi.json", "--output", "api.d.ts")
	run(t, dir, "node", "-e", `
		const { compilerOptions } = JSON.parse(require("fs").readFileSync("tsconfig.json"));
		require("fs").writeFileSync("tsconfig.json", JSON.stringify({ compilerOptions, files: [process.argv[1]] }));`, program)
	run(t, dir, "tsc", "--project", ".")
}

// A linter for OpenAPI finds neither errors nor warnings.
func TestLint(t *testing.T) {
	t.Parallel()
	run(t, folder(t), "redocly", "lint", "openapi.json", "--config", "redocly.yaml")
}

// A generated client can call agents, and the events on the streams match the description.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	generate(t, dir, "client.mts")
	redis := redistest.Start(t)
	a := agenttest.Run(t, "a", "--redis", redis.URL(), "--capacity", "1000", "--heartbeat", "500ms", "--ttl", "3s")
	b := agenttest.Run(t, "b", "--redis", redis.URL(), "--capacity", "1000", "--heartbeat", "500ms", "--ttl", "3s", "--join", a.Gossip)
	agenttest.Agree(t, a, b)
	seen := make(map[string]bool)
	schemas := readSchemas(t)
	for line := range strings.Lines(run(t, dir, "node", "client.mjs", "http://"+a.Base, "a", "b")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		event, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kind, _ := event.(map[string]any)["event"].(string)
		seen[name+" "+kind] = true
		schema, err := schemas.Compile("openapi.json#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(event); err != nil {
			t.Errorf("not as openapi.json says: %s%v", line, err)
		}
	}
	for _, want := range []string{"ChangeEvent batch", "ChangeEvent moved", "TableEvent update", "DirectiveEvent "} {
		if !seen[want] {
			t.Errorf("the client has not seen %q, but %v", want, seen)
		}
	}
}

// readSchemas reads openapi.json. The compiler rejects fields that it does not mention.
func readSchemas(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	text, err := os.Open(root + "cluster/clusterhttp/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	doc, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		s := schema.(map[string]any)
		variants, _ := s["oneOf"].([]any)
		if variants == nil {
			variants = []any{s}
		}
		for _, v := range variants {
			v.(map[string]any)["additionalProperties"] = false
		}
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return c
}

// npm can install the packages of a release, and their types match the modules.
func TestPackages(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	stage := t.TempDir()
	run(t, ".", root+"scripts/npm.sh", "v0.98.7", stage)
	install := []string{"install", "--offline", "--no-save", "--no-audit", "--no-fund", "--silent"}
	for _, name := range []string{"routing", "reconnect"} {
		run(t, dir, "npm", "pack", "--silent", filepath.Join(stage, name, "package"))
		archive := "./roost-cluster-" + name + "-0.98.7.tgz"
		files := strings.Fields(run(t, dir, "tar", "--list", "--file", archive))
		slices.Sort(files)
		want := []string{"LICENSE", "README.md", "package.json", name + ".d.mts", name + ".mjs"}
		for i := range want {
			want[i] = "package/" + want[i]
		}
		if !slices.Equal(files, want) {
			t.Errorf("%s has %q, want %q", archive, files, want)
		}
		install = append(install, archive)
	}
	run(t, dir, "npm", append(install, "--prefix", dir)...)
	generate(t, dir, "packages.mts")
	a := agenttest.Run(t, "a")
	if out := run(t, dir, "node", "packages.mjs", a.Base); out != "a a,a\n" {
		t.Errorf("the program prints %q", out)
	}
}
