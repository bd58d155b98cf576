package lease

import (
	"cmp"
	"strconv"
)

// Incarnation identifies one run of a node's process. A node that restarts keeps its
// Node and gets a greater Number. The zero Incarnation stands for none.
type Incarnation struct {
	Node   NodeID
	Number uint64
}

// String returns node#number.
func (i Incarnation) String() string {
	return string(i.Node) + "#" + strconv.FormatUint(i.Number, 10)
}

// Compare orders incarnations by node, then by number.
func (i Incarnation) Compare(o Incarnation) int {
	return cmp.Or(cmp.Compare(i.Node, o.Node), cmp.Compare(i.Number, o.Number))
}
