package placement_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// decodeNodes reads nodes. Each node is a weight (4 bytes), the length of the id (1 byte), and the id.
func decodeNodes(b []byte) []placement.Node {
	var nodes []placement.Node
	for len(b) >= 5 {
		n := min(int(b[4]), len(b)-5)
		nodes = append(nodes, placement.Node{ID: lease.NodeID(b[5 : 5+n]), Weight: binary.LittleEndian.Uint32(b)})
		b = b[5+n:]
	}
	return nodes
}

// For any nodes, Compute returns an error or a complete table.
func FuzzCompute(f *testing.F) {
	f.Add([]byte(""), 1)
	f.Add([]byte("\x01\x00\x00\x00\x01a\x01\x00\x00\x00\x01b"), 64)
	f.Add([]byte("\xff\xff\xff\xff\x01a\x01\x00\x00\x00\x01b\x00\x00\x00\x00\x01c"), 64)
	f.Add([]byte("\x01\x00\x00\x00\x01a\x01\x00\x00\x00\x01a"), 64)
	f.Add([]byte("\x01\x00\x00\x00\x02\x00\xff"), 64)
	f.Add([]byte("\x01\x00\x00\x00\x01a"), math.MinInt)
	f.Add([]byte("\x01\x00\x00\x00\x01a"), math.MaxInt)
	f.Fuzz(func(t *testing.T, b []byte, partitions int) {
		nodes := decodeNodes(b)
		valid := partitions >= 1 && partitions <= placement.MaxPartitions
		weights := map[lease.NodeID]uint32{}
		candidates := 0
		for _, n := range nodes {
			_, known := weights[n.ID]
			valid = valid && !known && n.ID.Validate() == nil
			weights[n.ID] = n.Weight
			if n.Weight > 0 {
				candidates++
			}
		}
		table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: partitions})
		if (err == nil) != valid {
			t.Fatalf("valid %v, error %v", valid, err)
		}
		if !valid {
			return
		}
		if table.Partitions() != partitions || len(table.Nodes()) != candidates || table.Digest() == 0 {
			t.Fatalf("%d partitions of %d, %d candidates of %d, digest %d",
				table.Partitions(), partitions, len(table.Nodes()), candidates, table.Digest())
		}
		for p := range placement.Partition(partitions) {
			if id, ok := table.Owner(p); ok != (candidates > 0) || ok && weights[id] == 0 {
				t.Fatalf("partition %d: owner %q of weight %d, %v", p, id, weights[id], ok)
			}
		}
		if b := table.Balance(); math.IsNaN(b.CV) || math.IsInf(b.MaxMean, 0) {
			t.Fatalf("balance %+v", b)
		}
		last := placement.Partition(partitions - 1)
		if ranked := table.Rank(last, math.MaxInt); len(ranked) != candidates {
			t.Fatalf("%d ranked of %d", len(ranked), candidates)
		}
	})
}
