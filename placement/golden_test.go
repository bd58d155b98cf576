package placement_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The scripts under testdata pin owners. If a script fails, an upgrade of a running cluster would move keys,
// and its nodes would disagree during the upgrade. Such a change needs a strategy with a different name.
//
//	place nodes=(a,b*2,…) [partitions=N]   the owner of each key, one key per input line
//	table count=N [partitions=N] [weights=(…)] [zones=(…)]   fingerprints of a table of node-0, node-1, …
//	tables …   the same for every built-in strategy, with the ranks of a few partitions
//	moves from=(a,…) to=(a,b,…) [partitions=N]   how many partitions move between which nodes
//
// A node is written id*weight, and its weight is 1 without *weight. All commands except tables use the
// default strategy.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			partitions := placement.DefaultPartitions
			d.MaybeScanArgs(t, "partitions", &partitions)
			switch d.Cmd {
			case "place":
				return place(mustCompute(t, partitions, scanNodes(t, d, "nodes")...), strings.Fields(d.Input))
			case "table":
				return fingerprint(mustCompute(t, partitions, scanNumbered(t, d)...))
			case "tables":
				return everyStrategy(t, partitions, scanNumbered(t, d))
			case "moves":
				from := mustCompute(t, partitions, scanNodes(t, d, "from")...)
				return listMoves(from, mustCompute(t, partitions, scanNodes(t, d, "to")...))
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func scanNodes(t *testing.T, d *datadriven.TestData, arg string) []placement.Node {
	t.Helper()
	a, ok := d.Arg(arg)
	if !ok {
		d.Fatalf(t, "no %s", arg)
	}
	var nodes []placement.Node
	for _, s := range a.Vals {
		if s == "" { // nodes=()
			continue
		}
		id, weight, weighted := strings.Cut(s, "*")
		n := placement.Node{ID: lease.NodeID(id), Weight: 1}
		if weighted {
			n.Weight = scanWeight(t, weight)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func scanNumbered(t *testing.T, d *datadriven.TestData) []placement.Node {
	t.Helper()
	var count int
	d.ScanArgs(t, "count", &count)
	nodes := make([]placement.Node, count)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("node-%d", i)), Weight: 1}
		if a, ok := d.Arg("weights"); ok {
			nodes[i].Weight = scanWeight(t, a.Vals[i%len(a.Vals)])
		}
		if a, ok := d.Arg("zones"); ok {
			nodes[i].Zone = a.Vals[i%len(a.Vals)]
		}
	}
	return nodes
}

func scanWeight(t *testing.T, s string) uint32 {
	t.Helper()
	w, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(w)
}

func place(table *placement.Table, keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		p := placement.Of(key, table.Partitions())
		fmt.Fprintf(&b, "%s → %d → %s\n", key, p, strings.Join(list(table.Rank(p, 3)), ", "))
	}
	return b.String()
}

// fingerprint hashes the owners with a function of the standard library, which no dependency can change.
func fingerprint(table *placement.Table) string {
	sum := sha256.Sum256([]byte(strings.Join(list(owners(table)), " ")))
	b := table.Balance()
	counts := slices.Sorted(maps.Values(b.Counts))
	least := append(counts, 0)[0] // 0 if there are no nodes
	return fmt.Sprintf("owners %x\ndigest %v\nleast %d, max/mean %.3f, cv %.3f\n", sum[:8], table.Digest(), least, b.MaxMean, b.CV)
}

// everyStrategy returns a paragraph for each built-in strategy, in the order of names.
func everyStrategy(t *testing.T, partitions int, nodes []placement.Node) string {
	t.Helper()
	all := builtins()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		table := mustComputeBy(t, all[name].fresh(), partitions, nodes...)
		sum := sha256.New()
		for p := range placement.Partition(partitions) {
			fmt.Fprintln(sum, table.Rank(p, 4))
		}
		fmt.Fprintf(&b, "%s: digest %v, ranks %x\n ", name, table.Digest(), sum.Sum(nil)[:8])
		for _, p := range []int{0, 1, partitions / 2, partitions - 1} {
			fmt.Fprintf(&b, " %d → %s;", p, strings.Join(list(table.Rank(placement.Partition(p), 3)), ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func listMoves(from, to *placement.Table) string {
	counts := map[string]int{}
	now := owners(to)
	for p, before := range owners(from) {
		if before != now[p] {
			counts[fmt.Sprintf("%s → %s", cmp.Or(before, "nobody"), cmp.Or(now[p], "nobody"))]++
		}
	}
	lines := []string{}
	for move, n := range counts {
		lines = append(lines, fmt.Sprintf("%s: %d\n", move, n))
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		return "none\n"
	}
	return strings.Join(lines, "")
}
