// Package latest passes the newest of successive values to any number of readers.
//
//	var level latest.Value[int]
//	level.Set(20)
//	…
//	value, changed := level.Get() // in any goroutine
//	<-changed                     // closed when there is a newer value
//
// Notification is level-triggered: a slow reader skips values but always reaches the newest one. Publishing
// never waits for a reader.
package latest

import "sync/atomic"

// Value is a value, and a channel that is closed when a newer value replaces it. The zero Value holds the
// zero T. All methods may be called concurrently.
type Value[T any] struct{ current atomic.Pointer[version[T]] }

type version[T any] struct {
	value    T
	replaced chan struct{} // nil = this is the last version
}

// Set replaces the value and wakes the waiting readers. It makes two allocations.
// After Close, Set does nothing.
func (v *Value[T]) Set(value T) {
	next := &version[T]{value, make(chan struct{})}
	v.replace(func(*version[T]) *version[T] { return next })
}

// Close makes the current value the last one. Close may be called again.
func (v *Value[T]) Close() {
	v.replace(func(old *version[T]) *version[T] { return &version[T]{value: old.value} })
}

// Load returns the current value, which must not be modified. It is for hot paths and has no checks, so it
// panics before the first Set or Get.
func (v *Value[T]) Load() *T { return &v.current.Load().value }

// Get returns the current value, which must not be modified, and a channel that is
// closed when the value is replaced. The channel is nil after Close. Get is
// lock-free, and allocates nothing after the first call.
func (v *Value[T]) Get() (*T, <-chan struct{}) {
	c := v.current.Load()
	if c == nil {
		c = v.init()
	}
	return &c.value, c.replaced
}

// init sets the zero value, unless a concurrent call was faster.
func (v *Value[T]) init() *version[T] {
	v.current.CompareAndSwap(nil, &version[T]{replaced: make(chan struct{})})
	return v.current.Load()
}

// replace replaces the version, unless the current one is the last. The goroutine that replaced a version
// closes its channel afterwards, so a reader that waits on the channel cannot miss the next version.
func (v *Value[T]) replace(by func(old *version[T]) *version[T]) {
	for {
		old := v.current.Load()
		if old == nil {
			old = v.init()
		}
		if old.replaced == nil {
			return
		}
		if v.current.CompareAndSwap(old, by(old)) {
			close(old.replaced)
			return
		}
	}
}
