package clusterhttp

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/roost-cluster/roost/events"
)

// journal encodes what changed between two states once for all streams that tell
// it, and remembers the states that were told last, so that a client whose stream
// broke goes on where it was.
type journal struct {
	run  string // an id of another process's journal means nothing here
	mu   sync.Mutex
	told [journaled]*entry // a ring
	next int
}

// journaled bounds what a journal holds: 16 events, of 1 MB each (3 MB with the longest
// ids) if all of 16,384 partitions moved, and their states, which share what did not
// change. A change is mostly a few nodes' share, and the whole a few MB.
const journaled = 16

// entry is one event: what changed from one state (nil: the beginning) to another.
type entry struct {
	from, to *events.State
	once     sync.Once
	event    []byte // once it is made; empty if there is no news
}

func newJournal() *journal { return &journal{run: rand.Text()} }

// event returns what a stream has to send that has told its client from, and now
// finds to; nothing if there is no news in it.
func (j *journal) event(from, to *events.State) []byte {
	if from == to {
		return nil
	}
	e := j.entry(from, to)
	e.once.Do(func() { // whoever else wants this event waits for it, and nobody else does
		if b := events.Diff(from, to); b.News() {
			e.event = encode(j.run, b)
		}
	})
	return e.event
}

func (j *journal) entry(from, to *events.State) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.told {
		if e != nil && e.to == to && e.from == from {
			return e
		}
	}
	e := &entry{from: from, to: to}
	j.told[j.next] = e
	j.next = (j.next + 1) % journaled
	return e
}

// state returns the state that the event of an id led to, or nil if it is not, or
// no longer, known.
func (j *journal) state(id string) *events.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.told {
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
