package clusterhttp

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/tablewire"
)

// journal encodes the changes between two states once for all streams. A journal also keeps the latest
// states, so that a client can resume a broken stream.
type journal[S any] struct {
	encode  func(from, to *S) []byte // returns an empty event if nothing changed
	mu      sync.Mutex
	entries [journaled]*entry[S] // a ring buffer
	next    int
}

// journaled is how many events a journal keeps, with their states. States share their unchanged parts. An event that
// moves all of 16,384 partitions takes 1 MB, or 3 MB with the longest ids. A journal usually takes a few MB, because
// most changes affect the partitions of only a few nodes.
const journaled = 16

// entry is an event with the changes from one state to a later state. If from is nil, the event contains the
// whole later state.
type entry[S any] struct {
	from, to *S
	once     sync.Once
	event    []byte // set by once; empty if nothing changed
}

// event returns an event with the changes between two states. The event is empty if nothing changed.
func (j *journal[S]) event(from, to *S) []byte {
	if from == to {
		return nil
	}
	e := j.entry(from, to)
	e.once.Do(func() { e.event = j.encode(from, to) }) // other streams that need the same event wait here
	return e.event
}

func (j *journal[S]) entry(from, to *S) *entry[S] {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e != nil && e.to == to && e.from == from {
			return e
		}
	}
	e := &entry[S]{from: from, to: to}
	j.entries[j.next] = e
	j.next = (j.next + 1) % journaled
	return e
}

// find searches the journal for a state that satisfies the function is. If there is no such state, find
// returns nil.
func (j *journal[S]) find(is func(*S) bool) *S {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e != nil && is(e.to) {
			return e.to
		}
	}
	return nil
}

// batches is the journal of /v1/events.
type batches struct {
	journal[events.State]
	run string // part of every event id, so that ids from another process do not match
}

func newBatches() *batches {
	b := &batches{run: rand.Text()}
	b.encode = func(from, to *events.State) []byte {
		if batch := events.Diff(from, to); batch.News() {
			return encode(b.run, batch)
		}
		return nil
	}
	return b
}

// state returns the state after the event with this id. If the id is unknown or the journal has dropped the
// event, state returns nil.
func (b *batches) state(id string) *events.State {
	return b.find(func(s *events.State) bool { return id == eventID(b.run, s.Version) })
}

func eventID(run string, version uint64) string { return fmt.Sprintf("%s-%d", run, version) }

func encode(run string, b events.Batch) []byte {
	return fmt.Appendf(nil, "id: %s\nevent: batch\ndata: %s\n\n", eventID(run, b.Version), plain(b))
}

// newUpdates returns the journal of /v1/table.
func newUpdates() *journal[tablewire.State] {
	return &journal[tablewire.State]{encode: func(from, to *tablewire.State) []byte {
		return fmt.Appendf(nil, "event: update\ndata: %s\n\n", plain(tablewire.Diff(from, to)))
	}}
}

// plain returns the JSON of a value. The value must contain only numbers and strings, so that encoding cannot
// fail.
func plain(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
