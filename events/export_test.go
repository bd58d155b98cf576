package events

import (
	"reflect"

	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/placement"
)

// Same reports whether a and b share their memory.
func Same[T any](a, b []T) bool { return same(a, b) }

// Since returns the version in which each partition was acquired, or 0 if it is not owned.
func (s *State) Since() []uint64 { return s.since }

// SinceOf returns the version in which p was acquired, or 0 if p is not owned.
func (s *State) SinceOf(p placement.Partition) uint64 { return at(s.since, p) }

// Changes returns the batch that a watcher gets for the change from old to cur.
func (f *Feed) Changes(old, cur *State) (b Batch, news bool) { return f.changes(old, cur) }

// Begin reports whether a run may begin.
func (f *Feed) Begin(o Ownership) bool { return f.begin(o) }

// PublishQuietly makes s the newest state without waking any reader.
func (f *Feed) PublishQuietly(s *State) {
	var quiet latest.Value[*State]
	quiet.Set(s)
	reflect.ValueOf(&f.newest).Elem().Set(reflect.ValueOf(&quiet).Elem())
}
