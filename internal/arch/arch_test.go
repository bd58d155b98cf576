package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/roost-cluster/roost/"

	memberlist = "github.com/hashicorp/memberlist"
	msgpack    = "github.com/vmihailenco/msgpack"
	redis      = "github.com/redis"
	prometheus = "github.com/prometheus"
	otel       = "go.opentelemetry.io"
	grpc       = "google.golang.org/grpc"
	k8s        = "k8s.io"
)

// A pattern names packages: "a" is only a, "a/..." is a and all packages below it, and "..." is every package. Patterns
// for packages of this module omit the module's path.

// house has a row for each package in the tree, with the packages of the tree that this package may import. The first
// row that matches counts.
var house = []struct {
	pkg string
	may []string
	why string
}{
	{"internal/wire", nil, "it reads and writes values, and knows no message"},
	{"lease", []string{"internal/wire"}, "liveness is the ground floor: it depends on no other part"},
	{"placement/ring", []string{"lease"}, "a ring has nodes and keys, and no tables"},
	{"placement", []string{"lease", "placement/ring"}, "ownership follows from the live members alone"},
	{
		"placement/assignment",
		[]string{"lease", "placement", "internal/wire"},
		"an assignment follows from the tables that nodes have computed",
	},
	{"events", []string{"lease", "placement", "events/latest"}, "events are the difference of two snapshots of any origin"},
	{"placement/placementtest", []string{"lease", "placement"}, "it tests a strategy through the interface alone"},
	{
		"cluster/affinity/presence",
		[]string{"lease", "placement", "internal/logqueue", "internal/roomname"},
		"presence depends neither on pins nor on the agent",
	},
	{"cluster/affinity/reconnect", []string{"lease"}, "a client that reconnects must not compile the agent"},
	{
		"cluster/routing",
		[]string{"lease", "placement", "events", "cluster/affinity/reconnect", "internal/agenturl", "internal/sse", "internal/tablewire"},
		"a routing client must not compile the agent",
	},
	{"cluster/routing/httpproxy", []string{"cluster/routing"}, "it asks whom the program names, and a gateway compiles no agent"},
	{
		"cluster/routing/routinggrpc",
		[]string{"events", "cluster/routing"},
		"it asks the table that the program names, and a gateway compiles no agent",
	},
	{"cluster/affinity/pinstore", []string{"lease", "placement"}, "a store compiles neither the agent nor the resolver that uses it"},
	{"cluster/affinity/internal/liveness", []string{"lease", "cluster"}, "who is dead follows from snapshots and from what the store said"},
	{
		"cluster/affinity/internal/capacity",
		[]string{"lease", "placement", "cluster", "cluster/affinity/internal/liveness", "cluster/affinity/pinstore"},
		"where a room fits follows from snapshots, and from what was placed before",
	},
	{
		"cluster/affinity/internal/rebalance",
		[]string{"lease", "cluster", "cluster/affinity/internal/capacity"},
		"which room moves, and where, follows from loads and reservations",
	},
	{
		"cluster/affinity/internal/pincache",
		[]string{"lease", "cluster/affinity/pinstore"},
		"it holds what the store said, of nodes that it does not know",
	},
	{
		"cluster/affinity/internal/agreement",
		[]string{"lease", "cluster/affinity/pinstore"},
		"it compares settings by their names, and knows none of them",
	},
	{"cluster/affinity/internal/latency", nil, "it counts, and knows nothing of what it counts"},
	{
		"cluster/affinity/internal/storeclient",
		[]string{"lease", "cluster/affinity/internal/latency", "cluster/affinity/pinstore"},
		"it bounds calls of any store, and knows nothing of rooms",
	},
	{"cluster/affinity", []string{
		"lease", "placement", "events", "cluster", "cluster/affinity/reconnect", "cluster/affinity/internal/...",
		"cluster/affinity/pinstore", "events/latest", "internal/logqueue", "internal/roomname",
	}, "pins follow the agent's snapshots, and work with any store"},
	{
		"cluster/affinity/roomsim",
		[]string{"lease", "placement", "cluster", "cluster/affinity", "cluster/affinity/internal/..."},
		"it runs the code that chooses nodes, and neither agents nor a store",
	},
	{
		"cluster/affinity/evacuate",
		[]string{"lease", "cluster", "cluster/affinity", "cluster/affinity/pinstore"},
		"it asks the resolver as any program does",
	},
	{
		"cluster/affinity/signalling",
		[]string{"cluster/affinity", "cluster/affinity/reconnect", "internal/sse"},
		"it answers by the resolver, as any program can",
	},
	{"cluster/affinity/redisconn", nil, "it says what a client of Redis must do, and knows none"},
	{"cluster/affinity/redisconn/rueidisconn", []string{"cluster/affinity/redisconn"}, "it connects, and knows nothing of what is stored"},
	{"cluster/affinity/redisconn/goredisconn", []string{"cluster/affinity/redisconn"}, "it connects, and knows nothing of what is stored"},
	{
		"cluster/affinity/redisstore",
		[]string{"lease", "placement", "cluster/affinity/pinstore", "cluster/affinity/presence", "cluster/affinity/redisconn", "internal/roomname"},
		"it implements the two stores and nothing above them",
	},
	{
		"cluster/affinity/affinitytest",
		[]string{"lease", "placement", "cluster/affinity/pinstore", "cluster/affinity/presence", "internal/roomname"},
		"it tests a store through the interface alone",
	},
	{"internal/logqueue", nil, "it stands before the handler of any package"},
	{"internal/release", nil, "what was built is known without any other part"},
	{"internal/release/sbom", nil, "it reads what was built"},
	{"internal/roomname", nil, "the rule for names is shared, and needs nothing"},
	{"internal/gossip", []string{"lease", "internal/gossip/firewall", "internal/wire"}, "gossip carries leases, not ownership"},
	{"internal/gossip/firewall", []string{"lease"}, "a rule protects memberlist, and knows no protocol of roost"},
	{"internal/split", []string{"lease"}, "who may own in a split follows from live members and what they said"},
	{
		"internal/node",
		[]string{"lease", "placement", "placement/assignment", "events", "internal/handoff", "internal/split", "internal/wire"},
		"the core of a node decides; the agent around it does the I/O",
	},
	{"internal/handoff", []string{"lease", "placement", "internal/wire"}, "which run may begin follows from tables, members and messages"},
	{"internal/explore", nil, "it visits the states of any protocol"},
	{"internal/auditor", nil, "it judges nodes from outside, and shares no code with them"},
	{"internal/ledger", []string{"lease", "placement", "events"}, "it adds up events, of a core or of an agent"},
	{
		"internal/sim",
		[]string{"lease", "placement", "events", "internal/node", "internal/ledger"},
		"it puts a virtual network under cores, and nothing of the agent",
	},
	{"internal/sim/chaos", nil, "it has only tests"},
	{"internal/simnet", nil, "the network of the tests moves bytes"},
	{"events/latest", nil, "it passes on values of any type"},
	{"internal/sse", nil, "a stream of events has no topic"},
	{"internal/tablewire", []string{"lease", "placement"}, "an agent and its routing clients share the format alone"},
	{"internal/agenturl", nil, "an address needs no agent"},
	{"internal/pipenet", nil, "it serves the tests of any package"},
	{"internal/arch", nil, "the rules depend on no package that they check"},
	{"internal/leak", nil, "it serves the tests of any package"},
	{"internal/agentproc", nil, "it knows an agent by its command line and its log alone"},
	{
		"internal/agentproc/agenttest",
		[]string{"lease", "cluster/clusterhttp", "cluster/clusterhttp/doctor", "internal/agentproc", "internal/redistest"},
		"it asks real agents by their API",
	},
	{"internal/redistest", nil, "it serves the tests of any package"},
	{"internal/standin", nil, "it serves any demo"},
	{"internal/fleettest", nil, "it has only tests"},
	{"internal/docstest", nil, "it has only tests"},
	{"cluster", []string{
		"lease", "placement", "placement/assignment", "events", "internal/node", "internal/gossip",
		"events/latest", "internal/logqueue", "internal/release",
	}, "the agent connects the parts and must not depend on its surroundings"},
	{
		"cluster/clustertest",
		[]string{"lease", "placement", "events", "cluster", "internal/gossip", "internal/ledger", "internal/simnet"},
		"it puts a simulated network under gossip",
	},
	{"cluster/clusterhttp/dashboard", nil, "it is a client of the API in the browser, and has no other source"},
	{
		"cluster/clusterhttp/report",
		[]string{"lease", "placement", "events", "cluster", "cluster/affinity"},
		"it has the types of answers, and knows neither server nor client",
	},
	{
		"cluster/clusterhttp/doctor",
		[]string{"lease", "cluster", "cluster/clusterhttp/report"},
		"it checks what an agent reports, whichever program asked for it",
	},
	{
		"cluster/clusterotel",
		[]string{"lease", "placement", "cluster/affinity", "cluster/affinity/pinstore", "cluster/affinity/presence", "cluster"},
		"it uses hooks and interfaces, and works without the HTTP API",
	},
	{"cluster/...", []string{
		"lease", "placement", "cluster/affinity", "cluster/affinity/evacuate", "cluster/affinity/pinstore",
		"cluster/affinity/signalling", "events", "cluster/routing", "cluster/affinity/reconnect",
		"internal/agenturl", "events/latest", "internal/sse", "internal/tablewire", "cluster",
		"cluster/clusterhttp/...",
	}, "surroundings of the agent reach gossip and Redis only through it or through interfaces"},
	{"cluster/kubernetes", []string{"lease", "cluster"}, "it fills in a configuration and reads snapshots, as any program can"},
	{"internal/e2e/...", nil, "it has only tests"},
	{"internal/bench", nil, "it has only tests"},
	{"cmd/...", []string{"..."}, "programs put everything together"},
	{"examples/...", []string{"..."}, "programs put everything together"},
}

// bans list forbidden imports. A transitive ban also covers indirect imports.
var bans = []struct {
	in         []string
	except     []string
	not        []string
	transitive bool
	why        string
}{
	{
		in:  []string{"lease", "placement", "placement/ring", "placement/assignment", "events", "internal/handoff", "internal/split"},
		not: []string{"net/...", "os/...", "log/...", "math/rand/...", "crypto/rand", memberlist + "/...", redis + "/...", prometheus + "/..."},
		why: "the core is pure: a test gives it time and messages, and the same input gives the same answer on every node",
	},
	{
		in:  []string{"internal/node", "internal/sim"},
		not: []string{"net/...", "os/...", "log/...", "crypto/rand", memberlist + "/...", redis + "/...", prometheus + "/..."},
		why: "the core of a node is pure: time, messages and a seed are arguments, so that a run can be repeated bit for bit",
	},
	{
		in:  []string{"cluster"},
		not: []string{"net/http/...", redis + "/...", prometheus + "/..."},
		why: "HTTP, Redis and Prometheus are the embedder's choice: clusterhttp, redisstore and clusterprom offer them",
	},
	{
		in:     []string{"..."},
		except: []string{"internal/gossip", "internal/gossip/firewall", "internal/simnet"},
		not:    []string{memberlist + "/..."},
		why:    "memberlist calls back under its lock and returns live pointers; only internal/gossip handles that, behind its firewall",
	},
	{
		in:     []string{"..."},
		except: []string{"internal/wire"},
		not:    []string{msgpack + "/..."},
		why:    "the library trusts what it decodes; only internal/wire compares lengths with the bytes that are there",
	},
	{
		in:     []string{"..."},
		except: []string{"cluster/clusterprom", "cmd/...", "examples/..."},
		not:    []string{prometheus + "/..."},
		why:    "packages have plain counters, which clusterprom reads at each scrape",
	},
	{
		in:         []string{"cluster"},
		not:        []string{redis + "/...", prometheus + "/..."},
		transitive: true,
		why:        "a program that imports only cluster pays for no Redis or Prometheus client",
	},
	{
		in:         []string{"cluster/affinity/pinstore", "cluster/affinity/redisstore", "cluster/affinity/affinitytest", "cluster/routing/..."},
		not:        []string{module + "cluster", memberlist + "/..."},
		transitive: true,
		why:        "a program that only keeps pins, or is a routing client, compiles no agent",
	},
	{
		in:         []string{"cluster/affinity/redisstore"},
		not:        []string{redis + "/..."},
		transitive: true,
		why:        "a program compiles only the client of Redis that it imports",
	},
	{
		in:     []string{"cmd/roost/..."},
		except: []string{"cmd/roost/internal/store"},
		not:    []string{module + "cluster/affinity/redisstore"},
		why:    "only internal/store knows kinds of stores, so that another kind changes one file",
	},
	{
		in:  []string{"cluster/clusterhttp/doctor"},
		not: []string{"net/http/...", "os/...", "log/..."},
		why: "checks are pure: a test gives them two looks at an agent",
	},
	{
		in:     []string{"..."},
		except: []string{"cluster/clusterotel"},
		not:    []string{otel + "/..."},
		why:    "only clusterotel creates spans, through hooks and interfaces",
	},
	{
		in:         []string{"lease", "placement", "events", "cluster", "cluster/affinity", "cluster/clusterhttp"},
		not:        []string{otel + "/..."},
		transitive: true,
		why:        "a program that traces nothing compiles no OpenTelemetry",
	},
	{
		in:     []string{"..."},
		except: []string{"cluster/routing/routinggrpc"},
		not:    []string{grpc + "/..."},
		why:    "only routinggrpc speaks gRPC, in a module of its own",
	},
	{
		in: []string{
			"lease", "placement", "events", "cluster", "cluster/affinity", "cluster/routing",
			"cluster/routing/httpproxy", "cluster/clusterhttp",
		},
		not:        []string{grpc + "/..."},
		transitive: true,
		why:        "a program without gRPC compiles none",
	},
	{
		in:         []string{"..."},
		not:        []string{otel + "/otel/sdk/...", otel + "/contrib/..."},
		transitive: true,
		why:        "the SDK, exporters and middleware of OpenTelemetry are the embedder's choice",
	},
	{
		in:         []string{"..."},
		except:     []string{"cluster/kubernetes"},
		not:        []string{k8s + "/..."},
		transitive: true,
		why:        "the agent has no token of Kubernetes, and only programs that want its API compile a client",
	},
	{
		in:         []string{"cluster/kubernetes"},
		not:        []string{k8s + "/client-go/kubernetes/..."},
		transitive: true,
		why:        "the generated clients link every type of Kubernetes into a program that needs four requests",
	},
}

// pkg is a package as printed by `go list -json`. Imports and Deps do not include packages that only tests import.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string // transitive
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

func TestImports(t *testing.T) {
	pkgs := list(t)
	seen := func(pattern string) bool {
		return slices.ContainsFunc(pkgs, func(p pkg) bool { return match(pattern, p.name()) })
	}
	for _, name := range []string{"lease", "cluster/clusterotel", "cluster/routing/routinggrpc"} {
		if !seen(name) {
			t.Fatalf("go list does not show the package %s", name)
		}
	}
	for _, room := range house {
		if !seen(room.pkg) {
			t.Errorf("%s: not in the tree, its row is unused", room.pkg)
		}
	}
	for _, problem := range check(pkgs) {
		t.Error(problem)
	}
}

// TestRulesBite breaks rules on purpose, and does not read these cases from the tables. So it fails if somebody weakens
// a table. "./" is this module. TestImports checks with the real tree that the exceptions work.
func TestRulesBite(t *testing.T) {
	for _, c := range []struct {
		pkgs, verb, paths string
		want              string // part of the single problem that each package has with each path
	}{
		{"lease", "imports", "./placement", "ground floor"},
		{"placement", "imports", "./events ./placement/assignment", "live members alone"},
		{"placement/assignment", "imports", "./events", "tables that nodes have computed"},
		{"events", "imports", "./cluster", "difference of two snapshots"},
		{"cluster/affinity/presence", "imports", "./cluster/affinity ./cluster/affinity/redisstore", "neither on pins"},
		{"cluster/affinity/reconnect", "imports", "./cluster/affinity", "must not compile the agent"},
		{"cluster/affinity", "imports", "./cluster/affinity/redisstore ./cluster/affinity/presence", "any store"},
		{"cluster/affinity/redisstore", "imports", "./cluster/affinity ./cluster", "two stores"},
		{"cluster/affinity/redisstore", "pulls in", redis + "/rueidis/internal/cmds " + redis + "/go-redis/v9", "only the client"},
		{"internal/gossip", "imports", "./placement", "not ownership"},
		{"internal/node", "imports", "./internal/gossip", "does the I/O"},
		{"internal/sim", "imports", "./cluster", "nothing of the agent"},
		{"cluster", "imports", "./cluster/clusterhttp ./cluster/affinity", "surroundings"},
		{"cluster/clusterhttp", "imports", "./cluster/affinity/redisstore", "through interfaces"},
		{"cluster/clusterotel", "imports", "./cluster/clusterhttp", "hooks and interfaces"},
		{"util", "imports", "fmt", "no row"},
		{"internal/auditor", "imports", "./lease ./events ./internal/ledger", "shares no code"},
		{"internal/auditor", "pulls in", "golang.org/x/sync/errgroup github.com/cespare/xxhash/v2", "standard library"},
		{
			"lease placement placement/ring placement/assignment events internal/handoff internal/split", "imports",
			"net net/netip os os/exec log log/slog math/rand math/rand/v2 crypto/rand " + redis + "/rueidis", "the core is pure",
		},
		{"internal/node internal/sim", "imports", "net net/http os log/slog crypto/rand " + redis + "/rueidis", "bit for bit"},
		{"cluster", "imports", "net/http " + redis + "/rueidis", "embedder's choice"},
		{"cluster", "pulls in", redis + "/rueidis/internal/cmds " + prometheus + "/client_golang/prometheus", "pays for no"},
		{"cluster cluster/clustertest", "imports", memberlist, "live pointers"},
		{"lease internal/gossip cluster", "imports", msgpack + "/v5", "trusts what it decodes"},
		{
			"cluster/affinity/pinstore cluster/affinity/redisstore cluster/affinity/affinitytest cluster/routing cluster/routing/httpproxy",
			"pulls in", "./cluster " + memberlist, "compiles no agent",
		},
		{"cluster/affinity cluster/clusterhttp", "imports", prometheus + "/client_golang/prometheus", "plain counters"},
		{"cmd/roost cmd/roost/internal/settings", "imports", "./cluster/affinity/redisstore", "kinds of stores"},
		{"cluster/clusterhttp/doctor", "imports", "net/http os log/slog", "two looks"},
		{"cluster cluster/clusterprom", "imports", otel + "/otel/trace", "only clusterotel"},
		{"lease placement events cluster cluster/affinity cluster/clusterhttp", "pulls in", otel + "/otel/trace", "traces nothing"},
		{"cluster/clusterotel", "pulls in", otel + "/otel/sdk/trace " + otel + "/contrib/x", "embedder's choice"},
		{"cluster cluster/routing/httpproxy", "imports", grpc, "only routinggrpc"},
		{
			"lease placement events cluster cluster/affinity cluster/routing cluster/routing/httpproxy cluster/clusterhttp",
			"pulls in", grpc + "/codes", "without gRPC",
		},
		{"cluster cmd/roost", "pulls in", k8s + "/client-go/rest", "no token"},
		{"cluster/kubernetes", "pulls in", k8s + "/client-go/kubernetes/typed/core/v1", "four requests"},
	} {
		for name := range strings.FieldsSeq(c.pkgs) {
			for path := range strings.FieldsSeq(strings.ReplaceAll(c.paths, "./", module)) {
				p := pkg{ImportPath: module + name, Imports: []string{path}}
				if c.verb == "pulls in" {
					p.Imports, p.Deps = nil, p.Imports
				}
				problems := check([]pkg{p})
				if len(problems) != 1 || !strings.Contains(problems[0], c.want) {
					t.Errorf("%s %s %s: got %q, want %q", name, c.verb, path, problems, c.want)
				}
			}
		}
	}
}

// check returns a sentence for each import that breaks a rule.
func check(pkgs []pkg) []string {
	var problems []string
	for _, p := range pkgs {
		problems = append(problems, checkHouse(p)...)
		problems = append(problems, checkBans(p)...)
		problems = append(problems, checkAlone(p)...)
	}
	return problems
}

func checkHouse(p pkg) []string {
	for _, room := range house {
		if !match(room.pkg, p.name()) {
			continue
		}
		var problems []string
		for _, path := range p.Imports {
			name, inside := strings.CutPrefix(path, module)
			if inside && !matchAny(room.may, name) {
				problems = append(problems, fmt.Sprintf("%s imports %s, but %s", p.name(), name, room.why))
			}
		}
		return problems
	}
	return []string{fmt.Sprintf("%s has no row in the table house: say there what it may import, and why", p.name())}
}

func checkBans(p pkg) []string {
	var problems []string
	for _, ban := range bans {
		if !matchAny(ban.in, p.name()) || matchAny(ban.except, p.name()) {
			continue
		}
		paths, verb := p.Imports, "imports"
		if ban.transitive {
			paths, verb = p.Deps, "pulls in"
		}
		for _, path := range paths {
			if matchAny(ban.not, path) {
				problems = append(problems, fmt.Sprintf("%s %s %s, but %s", p.name(), verb, path, ban.why))
			}
		}
	}
	return problems
}

// checkAlone returns the packages outside of the standard library that the auditor imports, because it must not share
// them with the nodes that it judges.
func checkAlone(p pkg) []string {
	var problems []string
	for _, path := range p.Deps {
		if domain, _, _ := strings.Cut(path, "/"); p.name() == "internal/auditor" && strings.Contains(domain, ".") {
			problems = append(problems, fmt.Sprintf("%s pulls in %s, but it uses only the standard library", p.name(), path))
		}
	}
	return problems
}

func match(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	base, below := strings.CutSuffix(pattern, "/...")
	return name == base || below && strings.HasPrefix(name, base+"/")
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return match(pattern, name) })
}

// list returns every package in the tree, including packages of nested modules.
func list(t *testing.T) (pkgs []pkg) {
	t.Helper()
	for _, dir := range modules(t, filepath.Join("..", "..")) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", "./...")
		cmd.Dir, cmd.Stderr = dir, &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
			var p pkg
			if err := dec.Decode(&p); err != nil {
				t.Fatalf("go list: %v", err)
			}
			pkgs = append(pkgs, p)
		}
	}
	return pkgs
}

// modules returns the roots of the modules below root that have packages. It opens every directory, because go test
// reuses the result of a test until a file that the test itself opened changes. Files that go list reads do not count,
// so a forbidden import could stay unnoticed until this package changes.
func modules(t *testing.T, root string) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.Name() == "go.mod" && filepath.Base(filepath.Dir(path)) != "tools":
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}
