package lease

import "slices"

// Evidence is what a watcher found when its stream to a node ended.
type Evidence uint8

// The kinds of evidence.
const (
	Refused Evidence = iota + 1 // the node's address refused a connection, or another incarnation answered there
	Silent                      // the stream ended without an answer, and the address did not answer either
)

// watchers is how many other nodes watch each node.
const watchers = 4

// Watched returns the nodes that this node watches: those that follow it in the order of
// handles, after the last one from the first on. A handle is a hash, so nodes of one host or
// zone watch each other no more than others. A node that comes or goes changes what four
// nodes watch. O(log n).
func (s *Set) Watched() []Handle {
	own, _ := slices.BinarySearch(s.order, s.self.handle)
	watched := make([]Handle, min(watchers, len(s.order)-1))
	for i := range watched {
		watched[i] = s.order[(own+1+i)%len(s.order)]
	}
	return watched
}
