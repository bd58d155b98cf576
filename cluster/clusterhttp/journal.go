package clusterhttp

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/roost-cluster/roost/events"
)

// journal encodes the changes between two states once for all streams, and keeps the last
// states, so that a client can resume a broken stream.
type journal struct {
	run     string // marks ids of this process; ids of another process are unknown here
	mu      sync.Mutex
	entries [journaled]*entry // a ring
	next    int
}

// journaled bounds the size of a journal: 16 events, of 1 MB each (3 MB with the longest
// ids) if all of 16,384 partitions moved, and their states, which share unchanged parts.
// A change usually concerns the partitions of a few nodes, and a journal takes a few MB.
const journaled = 16

// entry is one event: the changes from one state (nil: the beginning) to another.
type entry struct {
	from, to *events.State
	once     sync.Once
	event    []byte // set by once; empty without a change
}

func newJournal() *journal { return &journal{run: rand.Text()} }

// event returns the event that takes a client from one state to another; empty without a
// change.
func (j *journal) event(from, to *events.State) []byte {
	if from == to {
		return nil
	}
	e := j.entry(from, to)
	e.once.Do(func() { // other streams with the same event wait for it
		if b := events.Diff(from, to); b.News() {
			e.event = encode(j.run, b)
		}
	})
	return e.event
}

func (j *journal) entry(from, to *events.State) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e != nil && e.to == to && e.from == from {
			return e
		}
	}
	e := &entry{from: from, to: to}
	j.entries[j.next] = e
	j.next = (j.next + 1) % journaled
	return e
}

// state returns the state after the event of an id, or nil if it is unknown or was
// dropped.
func (j *journal) state(id string) *events.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e != nil && id == eventID(j.run, e.to.Version) {
			return e.to
		}
	}
	return nil
}

func eventID(run string, version uint64) string { return fmt.Sprintf("%s-%d", run, version) }

func encode(run string, b events.Batch) []byte {
	data, err := json.Marshal(b)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return fmt.Appendf(nil, "id: %s\nevent: batch\ndata: %s\n\n", eventID(run, b.Version), data)
}
