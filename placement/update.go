package placement

// updater is a strategy that can derive owners from a table with other nodes. The result is the same as with
// Assign, but cheaper to compute.
type updater interface {
	// update returns the owners of t, given a base table with the same partitions and the nodes before the
	// change d. Both tables have at least one node. update copies cached hashes from base to t.
	update(base, t *Table, d nodeChange) []int32
}

// update compares each partition's owner only with newcomers and with nodes that gained weight. If the owner
// left or lost weight, update compares all nodes. It costs O(newcomers · partitions + nodes · partitions of
// the leavers).
func (hrw) update(base, t *Table, d nodeChange) []int32 {
	if t.keys = base.keys; t.keys == nil {
		t.keys = hashPartitions(t.partitions)
	}
	t.candidates = d.candidates(base.candidates, t.nodes)
	updated := make([]int32, t.partitions)
	for p, old := range base.owners {
		key := t.keys[p]
		owner := d.now[old]
		if owner < 0 || d.lost[old] {
			updated[p] = int32(bestCandidate(t.candidates, key))
			continue
		}
		updated[p] = owner
		if len(d.gained) == 0 {
			continue
		}
		best := t.candidates[owner].score(key)
		for _, i := range d.gained {
			if s := t.candidates[i].score(key); s.wins(&best) {
				best = s
			}
		}
		updated[p] = int32(best.node)
	}
	return updated
}

func hashPartitions(n int) []uint64 {
	keys := make([]uint64, n)
	for p := range keys {
		keys[p] = hashPartition(Partition(p))
	}
	return keys
}

// bestCandidate returns the index of the winner among nodes that are sorted by id. Most adjacent nodes have
// equal weights, so comparing their draws is enough and needs no logarithm.
func bestCandidate(candidates []candidate, key uint64) int {
	var best score
	for start := 0; start < len(candidates); {
		end := start + 1
		for end < len(candidates) && candidates[end].weight == candidates[start].weight {
			end++
		}
		if s := bestOf(candidates[start:end], key); start == 0 || s.wins(&best) {
			best = s
		}
		start = end
	}
	return best.node
}

// nodeChange is the difference between two sets of nodes.
type nodeChange struct {
	now    []int32 // new index by old index, -1 for a leaver
	lost   []bool  // by old index: the node weighs less than before
	gained []int32 // new indexes of newcomers and nodes that weigh more
}

// candidates returns the nodes after the change, given the candidates before.
func (d *nodeChange) candidates(before []candidate, nodes []Node) []candidate {
	after := make([]candidate, len(nodes))
	for i, k := range d.now {
		if k >= 0 {
			after[k].hash = before[i].hash
		}
	}
	for _, k := range d.gained {
		after[k].hash = hashNode(nodes[k])
	}
	for k := range after {
		after[k].weight, after[k].node = nodes[k].Weight, int32(k)
	}
	return after
}

func compareNodes(before, after []Node) nodeChange {
	d := nodeChange{now: make([]int32, len(before)), lost: make([]bool, len(before))}
	i := 0
	for k := range after {
		n := &after[k]
		for i < len(before) && before[i].ID != n.ID && before[i].ID < n.ID { // compare for equality first, because most ids are equal
			d.now[i] = -1
			i++
		}
		if i == len(before) || before[i].ID != n.ID {
			d.gained = append(d.gained, int32(k))
			continue
		}
		d.now[i] = int32(k)
		d.lost[i] = n.Weight < before[i].Weight
		if n.Weight > before[i].Weight {
			d.gained = append(d.gained, int32(k))
		}
		i++
	}
	for ; i < len(before); i++ {
		d.now[i] = -1
	}
	return d
}
