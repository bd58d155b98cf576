package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	redis      = "github.com/redis"
	prometheus = "github.com/prometheus"
	otel       = "go.opentelemetry.io"
	grpc       = "google.golang.org/grpc"
	k8s        = "k8s.io"
)

// A pattern names packages: "a" is only a, "a/..." is a and all packages below it, "..." is
// every package. Patterns of this module omit its path.

// house has a row for each package of the tree, with the packages of the
// tree that it may import. The first row that matches counts.
var house = []struct {
	pkg string
	may []string
	why string
}{
	{"lease", nil, "liveness is the ground floor: it depends on no other part"},
	{"placement/ring", []string{"lease"}, "a ring has nodes and keys, and no tables"},
	{"placement", []string{"lease", "placement/ring"}, "ownership follows from the live members alone"},
	{"placement/assignment", []string{"lease", "placement"}, "an assignment follows from the tables that nodes have computed"},
	{"events", []string{"lease", "placement", "internal/latest"}, "events are the difference of two snapshots of any origin"},
	{"placement/placementtest", []string{"lease", "placement"}, "it tests a strategy through the interface alone"},
	{"presence", []string{"lease", "placement", "internal/logqueue", "internal/roomname"}, "presence depends neither on pins nor on the agent"},
	{"reconnect", []string{"lease"}, "a client that reconnects must not compile the agent"},
	{"follow", []string{"lease", "placement", "events", "reconnect", "internal/agenturl", "internal/sse", "internal/tablewire"}, "a program that follows must not compile the agent"},
	{"follow/httpproxy", []string{"follow"}, "it asks whom the program names, and a gateway compiles no agent"},
	{"follow/followgrpc", []string{"events", "follow"}, "it asks the table that the program names, and a gateway compiles no agent"},
	{"affinity/pinstore", []string{"lease", "placement"}, "a store compiles neither the agent nor the resolver that uses it"},
	{"affinity/internal/liveness", []string{"lease", "cluster"}, "who is dead follows from snapshots and from what the store said"},
	{"affinity/internal/capacity", []string{"lease", "placement", "cluster", "affinity/internal/liveness", "affinity/pinstore"}, "where a room fits follows from snapshots, and from what was placed before"},
	{"affinity/internal/pincache", []string{"lease", "affinity/pinstore"}, "it holds what the store said, of nodes that it does not know"},
	{"affinity/internal/agreement", []string{"lease", "affinity/pinstore"}, "it compares settings by their names, and knows none of them"},
	{"affinity/internal/latency", nil, "it counts, and knows nothing of what it counts"},
	{"affinity/internal/storeclient", []string{"lease", "affinity/internal/latency", "affinity/pinstore"}, "it bounds calls of any store, and knows nothing of rooms"},
	{"affinity", []string{"lease", "placement", "events", "cluster", "reconnect", "affinity/internal/...", "affinity/pinstore", "internal/latest", "internal/logqueue", "internal/roomname"}, "pins follow the agent's snapshots, and work with any store"},
	{"affinity/evacuate", []string{"lease", "cluster", "affinity", "affinity/pinstore"}, "it asks the resolver as any program does"},
	{"affinity/signalling", []string{"affinity", "reconnect", "internal/sse"}, "it answers by the resolver, as any program can"},
	{"affinity/redisstore", []string{"lease", "placement", "affinity/pinstore", "presence", "internal/roomname"}, "it implements the two stores and nothing above them"},
	{"affinity/affinitytest", []string{"lease", "placement", "affinity/pinstore", "presence", "internal/roomname"}, "it tests a store through the interface alone"},
	{"internal/logqueue", nil, "it stands before the handler of any package"},
	{"internal/release", nil, "what was built is known without any other part"},
	{"internal/roomname", nil, "the rule for names is shared, and needs nothing"},
	{"internal/gossip", []string{"lease"}, "gossip carries leases, not ownership"},
	{"internal/split", []string{"lease"}, "who may own in a split follows from live members and what they said"},
	{"internal/node", []string{"lease", "placement", "placement/assignment", "events", "internal/handover", "internal/split"}, "the kernel of a node decides; the agent around it does the I/O"},
	{"internal/handover", []string{"lease", "placement"}, "which run may begin follows from tables, members and messages"},
	{"internal/explore", nil, "it visits the states of any protocol"},
	{"internal/ledger", []string{"lease", "placement", "events"}, "it adds up events, of a kernel or of an agent"},
	{"internal/sim", []string{"lease", "placement", "events", "internal/node", "internal/ledger"}, "it puts a virtual network under kernels, and nothing of the agent"},
	{"internal/chaos", []string{"lease", "placement", "events", "internal/node", "internal/sim", "internal/ledger"}, "it puts faults on simulated kernels, and checks what they publish"},
	{"internal/simnet", nil, "the network of the tests moves bytes"},
	{"internal/latest", nil, "it passes on values of any type"},
	{"internal/sse", nil, "a stream of events has no topic"},
	{"internal/tablewire", []string{"lease", "placement"}, "an agent and its followers share the format alone"},
	{"internal/agenturl", nil, "an address needs no agent"},
	{"internal/pipenet", nil, "it serves the tests of any package"},
	{"internal/arch", nil, "the rules depend on no package that they check"},
	{"internal/leak", nil, "it serves the tests of any package"},
	{"internal/agentproc", nil, "it knows an agent by its command line and its log alone"},
	{"internal/agentproc/agenttest", []string{"lease", "cluster/clusterhttp", "cluster/clusterhttp/doctor", "internal/agentproc", "internal/redistest"}, "it asks real agents by their API"},
	{"internal/redistest", nil, "it serves the tests of any package"},
	{"internal/fleettest", nil, "it has only tests"},
	{"internal/netlab", nil, "it has only tests"},
	{"internal/docstest", nil, "it has only tests"},
	{"cluster", []string{"lease", "placement", "placement/assignment", "events", "internal/node", "internal/gossip", "internal/latest", "internal/logqueue", "internal/release"}, "the agent connects the parts and must not depend on its surroundings"},
	{"cluster/clustertest", []string{"lease", "placement", "events", "cluster", "internal/gossip", "internal/ledger", "internal/simnet"}, "it puts a simulated network under gossip"},
	{"cluster/clusterhttp/dashboard", nil, "it is a client of the API in the browser, and has no other source"},
	{"cluster/clusterhttp/report", []string{"lease", "placement", "events", "cluster", "affinity"}, "it has the types of answers, and knows neither server nor client"},
	{"cluster/clusterhttp/doctor", []string{"lease", "cluster", "cluster/clusterhttp/report"}, "it judges what an agent reports, whichever program asked for it"},
	{"cluster/clusterotel", []string{"lease", "placement", "affinity", "affinity/pinstore", "presence", "cluster"}, "it uses hooks and interfaces, and works without the HTTP API"},
	{"cluster/...", []string{"lease", "placement", "affinity", "affinity/evacuate", "affinity/pinstore", "affinity/signalling", "events", "follow", "reconnect", "internal/agenturl", "internal/latest", "internal/sse", "internal/tablewire", "cluster/..."}, "surroundings of the agent reach gossip and Redis only through it or through interfaces"},
	{"kubernetes", []string{"lease", "cluster"}, "it fills in a configuration and reads snapshots, as any program can"},
	{"internal/e2e", nil, "it has only tests"},
	{"deploy/...", nil, "it has only tests"},
	{"bench", nil, "it has only tests"},
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
		in:  []string{"lease", "placement", "placement/ring", "placement/assignment", "events", "internal/handover", "internal/split"},
		not: []string{"net/...", "os/...", "log/...", "math/rand/...", "crypto/rand", memberlist + "/...", redis + "/...", prometheus + "/..."},
		why: "the kernel is pure: a test gives it time and messages, and the same input gives the same answer on every node",
	},
	{
		in:  []string{"internal/node", "internal/sim"},
		not: []string{"net/...", "os/...", "log/...", "crypto/rand", memberlist + "/...", redis + "/...", prometheus + "/..."},
		why: "the kernel of a node is pure: time, messages and a seed are arguments, so that a run can be repeated bit for bit",
	},
	{
		in:  []string{"cluster"},
		not: []string{"net/http/...", redis + "/...", prometheus + "/..."},
		why: "HTTP, Redis and Prometheus are the embedder's choice: clusterhttp, redisstore and clusterprom offer them",
	},
	{
		in:     []string{"..."},
		except: []string{"internal/gossip", "internal/simnet"},
		not:    []string{memberlist + "/..."},
		why:    "memberlist calls back under its lock and returns live pointers; only internal/gossip handles that",
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
		in:         []string{"affinity/pinstore", "affinity/redisstore", "affinity/affinitytest", "follow/..."},
		not:        []string{module + "cluster", memberlist + "/..."},
		transitive: true,
		why:        "a program that only keeps pins, or follows, compiles no agent",
	},
	{
		in:     []string{"cmd/roost/..."},
		except: []string{"cmd/roost/internal/store"},
		not:    []string{module + "affinity/redisstore"},
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
		in:         []string{"lease", "placement", "events", "cluster", "affinity", "cluster/clusterhttp"},
		not:        []string{otel + "/..."},
		transitive: true,
		why:        "a program that traces nothing compiles no OpenTelemetry",
	},
	{
		in:     []string{"..."},
		except: []string{"follow/followgrpc"},
		not:    []string{grpc + "/..."},
		why:    "only followgrpc speaks gRPC, in a module of its own",
	},
	{
		in:         []string{"lease", "placement", "events", "cluster", "affinity", "follow", "follow/httpproxy", "cluster/clusterhttp"},
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
		except:     []string{"kubernetes"},
		not:        []string{k8s + "/..."},
		transitive: true,
		why:        "the agent has no token of Kubernetes, and only programs that want its API compile a client",
	},
	{
		in:         []string{"kubernetes"},
		not:        []string{k8s + "/client-go/kubernetes/..."},
		transitive: true,
		why:        "the generated clients link every type of Kubernetes into a program that needs four requests",
	},
}

// pkg is a package as `go list -json` prints it. Imports and Deps leave out
// what only tests import.
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
	for _, name := range []string{"lease", "cluster/clusterotel", "follow/followgrpc"} {
		if !seen(name) {
			t.Fatalf("go list does not show the package %s", name)
		}
	}
	for _, room := range house {
		if !seen(room.pkg) {
			t.Logf("%s: not in the tree, its row is unused", room.pkg)
		}
	}
	for _, fault := range check(pkgs) {
		t.Error(fault)
	}
}

// TestRulesBite breaks each rule once, also for packages that do not exist yet.
func TestRulesBite(t *testing.T) {
	direct := func(imports ...string) pkg { return pkg{Imports: imports, Deps: imports} }
	for _, c := range []struct {
		name string
		pkg  pkg
		want string // part of the one fault; "" for none
	}{
		{"lease", direct("fmt", "time"), ""},
		{"lease", direct(module + "placement"), "ground floor"},
		{"lease", direct("net/netip"), "pure"},
		{"lease", direct("math/rand/v2"), "pure"},
		{"placement", direct(module + "events"), "live members alone"},
		{"placement", direct("log/slog"), "pure"},
		{"placement", direct("github.com/dgryski/go-rendezvous"), ""},
		{"placement/ring", direct(module + "placement"), "and no tables"},
		{"placement", direct(module + "placement/assignment"), "live members alone"},
		{"placement/assignment", direct(module+"lease", module+"placement"), ""},
		{"placement/assignment", direct(module + "events"), "tables that nodes have computed"},
		{"placement/assignment", direct("net"), "pure"},
		{"events", direct("sync", module+"placement"), ""},
		{"events", direct("os"), "pure"},
		{"events", direct(module + "cluster"), "difference of two snapshots"},
		{"placement/placementtest", direct("testing", module+"lease", module+"placement"), ""},
		{"placement/placementtest", direct(module + "cluster"), "interface alone"},
		{"affinity", direct("os", "time"), ""},
		{"affinity", direct(module + "affinity/redisstore"), "any store"},
		{"affinity/pinstore", direct(module+"lease", module+"placement"), ""},
		{"affinity/redisstore", pkg{Deps: []string{module + "cluster"}}, "compiles no agent"},
		{"affinity/pinstore", direct(module + "affinity"), "neither the agent nor the resolver"},
		{"affinity/internal/liveness", direct(module + "affinity/pinstore"), "what the store said"},
		{"affinity/internal/capacity", direct(module + "affinity"), "where a room fits"},
		{"affinity/internal/capacity", direct(module + "affinity/internal/storeclient"), "where a room fits"},
		{"affinity/internal/pincache", direct(module + "cluster"), "what the store said"},
		{"affinity/internal/storeclient", direct(module + "cluster"), "nothing of rooms"},
		{"affinity/redisstore", direct("github.com/redis/rueidis", module+"affinity/pinstore"), ""},
		{"affinity/redisstore", direct(module + "affinity"), "two stores"},
		{"affinity/redisstore", pkg{Imports: []string{module + "cluster"}}, "two stores"},
		{"presence", direct(module+"placement", module+"internal/roomname"), ""},
		{"presence", direct(module + "affinity"), "neither on pins"},
		{"presence", direct(module + "affinity/redisstore"), "neither on pins"},
		{"reconnect", direct(module + "lease"), ""},
		{"reconnect", direct(module + "affinity"), "must not compile the agent"},
		{"internal/roomname", direct(module + "affinity"), "needs nothing"},
		{"affinity", direct(module + "presence"), "any store"},
		{"affinity/affinitytest", direct("testing", module+"affinity/pinstore"), ""},
		{"affinity/affinitytest", direct(module + "affinity/redisstore"), "interface alone"},
		{"internal/gossip", direct(memberlist, module+"lease"), ""},
		{"internal/gossip", direct(module + "placement"), "not ownership"},
		{"internal/node", direct("math/rand/v2", module+"lease", module+"placement", module+"events"), ""},
		{"internal/node", direct("log/slog"), "repeated bit for bit"},
		{"internal/node", direct(module + "internal/gossip"), "does the I/O"},
		{"internal/handover", direct(module+"lease", module+"placement"), ""},
		{"internal/handover", direct(module + "internal/node"), "tables, members and messages"},
		{"internal/handover", direct("math/rand/v2"), "pure"},
		{"internal/split", direct(module + "placement"), "who may own"},
		{"internal/split", direct("math/rand/v2"), "pure"},
		{"internal/explore", direct(module + "lease"), "any protocol"},
		{"internal/sim", direct(module + "cluster"), "nothing of the agent"},
		{"internal/sim", direct("sync/atomic", module+"internal/simnet"), "nothing of the agent"},
		{"internal/simnet", direct(memberlist), ""},
		{"cluster", direct("net", "log/slog", module+"internal/gossip"), ""},
		{"cluster", direct("net/http"), "embedder's choice"},
		{"cluster", direct(memberlist), "live pointers"},
		{"cluster", direct(module + "cluster/clusterhttp"), "surroundings"},
		{"cluster", direct(module + "affinity"), "surroundings"},
		{"cluster", pkg{Deps: []string{"github.com/redis/rueidis/internal/cmds"}}, "pays for no"},
		{"cluster", pkg{Deps: []string{"github.com/prometheus/client_golang/prometheus"}}, "pays for no"},
		{"cluster/clusterprom", direct("github.com/prometheus/client_golang/prometheus", module+"cluster"), ""},
		{"cluster/clusterhttp", direct(module + "affinity/redisstore"), "through interfaces"},
		{"cluster/clusterhttp/dashboard", direct("embed", "net/http"), ""},
		{"cluster/clusterhttp/dashboard", direct(module + "cluster"), "client of the API"},
		{"cluster/clusterhttp/report", direct(module + "cluster/clusterhttp"), "neither server nor client"},
		{"cluster/clusterhttp/doctor", direct(module + "cluster/clusterhttp"), "whichever program asked"},
		{"cluster/clusterhttp", direct("github.com/prometheus/client_golang/prometheus"), "plain counters"},
		{"affinity", direct("github.com/prometheus/client_golang/prometheus"), "plain counters"},
		{"cmd/roost", direct("github.com/prometheus/client_golang/prometheus/promhttp"), ""},
		{"cluster/clusterotel", direct(otel+"/otel/trace", module+"affinity"), ""},
		{"cluster/clusterotel", direct(module + "cluster/clusterhttp"), "hooks and interfaces"},
		{"cluster/clusterotel", direct(otel + "/otel/sdk/trace"), "embedder's choice"},
		{"cluster/clusterotel", pkg{Deps: []string{otel + "/contrib/instrumentation/net/http/otelhttp"}}, "embedder's choice"},
		{"cluster/clusterprom", direct(otel + "/otel/trace"), "only clusterotel"},
		{"affinity", pkg{Deps: []string{otel + "/otel/trace"}}, "traces nothing"},
		{"cluster/clusterhttp", pkg{Deps: []string{otel + "/otel/trace"}}, "traces nothing"},
		{"cluster", pkg{Deps: []string{otel + "/otel/trace"}}, "traces nothing"},
		{"follow/followgrpc", direct(grpc+"/balancer", module+"follow"), ""},
		{"follow/followgrpc", direct(module + "follow/httpproxy"), "the table that the program names"},
		{"follow/followgrpc", pkg{Deps: []string{module + "cluster"}}, "compiles no agent"},
		{"follow/httpproxy", pkg{Imports: []string{grpc}}, "only followgrpc"},
		{"follow", pkg{Deps: []string{grpc + "/codes"}}, "without gRPC"},
		{"cluster/clustertest", direct(module + "internal/simnet"), ""},
		{"cluster/clustertest", direct(memberlist), "live pointers"},
		{"cmd/roost/internal/store", direct(module+"cluster", module+"affinity/redisstore"), ""},
		{"cmd/roost", direct(module + "affinity/redisstore"), "kinds of stores"},
		{"cluster/clusterhttp/doctor", direct("net/http"), "two looks"},
		{"examples/embed", direct(module + "cluster"), ""},
		{"kubernetes", direct(module+"cluster", k8s+"/client-go/rest"), ""},
		{"kubernetes", direct(k8s + "/client-go/kubernetes/typed/core/v1"), "four requests"},
		{"kubernetes", direct(module + "cluster/clusterhttp"), "as any program can"},
		{"cmd/roost", pkg{Deps: []string{k8s + "/client-go/rest"}}, "no token"},
		{"util", direct(), "no row"},
	} {
		c.pkg.ImportPath = module + c.name
		faults := check([]pkg{c.pkg})
		switch {
		case c.want == "" && len(faults) > 0:
			t.Errorf("%s with %v: unexpected %q", c.name, c.pkg.Deps, faults)
		case c.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.want)):
			t.Errorf("%s with %v: got %q, want one fault with %q", c.name, c.pkg.Deps, faults, c.want)
		}
	}
}

// check returns a sentence for each import that breaks a rule.
func check(pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		faults = append(faults, checkHouse(p)...)
		faults = append(faults, checkBans(p)...)
	}
	return faults
}

func checkHouse(p pkg) []string {
	for _, room := range house {
		if !match(room.pkg, p.name()) {
			continue
		}
		var faults []string
		for _, path := range p.Imports {
			name, inside := strings.CutPrefix(path, module)
			if inside && !matchAny(room.may, name) {
				faults = append(faults, fmt.Sprintf("%s imports %s, but %s", p.name(), name, room.why))
			}
		}
		return faults
	}
	return []string{fmt.Sprintf("%s has no row in the table house: say there what it may import, and why", p.name())}
}

func checkBans(p pkg) []string {
	var faults []string
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
				faults = append(faults, fmt.Sprintf("%s %s %s, but %s", p.name(), verb, path, ban.why))
			}
		}
	}
	return faults
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

// list returns every package of the tree, also those of nested modules.
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
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p pkg
			err := dec.Decode(&p)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			pkgs = append(pkgs, p)
		}
	}
	return pkgs
}

// modules returns the roots of the modules below root that have packages, and looks at
// every directory. The go command reuses the result of a test until a file changes that
// the test itself opened; files that go list reads do not count. Without the look, a
// forbidden import would pass until the next change of this package.
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
