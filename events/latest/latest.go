// Package latest publishes a value to any number of readers, which always get the newest version.
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

// Value contains a value that can be replaced, and notifies readers by closing a channel. The zero Value
// contains the zero T. All methods are safe for concurrent use.
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

// Close makes the current value final. You can call Close more than once.
func (v *Value[T]) Close() {
	v.replace(func(old *version[T]) *version[T] { return &version[T]{value: old.value} })
}

// Load returns the current value, which must not be modified. Load skips checks for use in hot paths, so it
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

// init stores the zero value if no concurrent call has stored a value first.
func (v *Value[T]) init() *version[T] {
	v.current.CompareAndSwap(nil, &version[T]{replaced: make(chan struct{})})
	return v.current.Load()
}

// replace replaces the current version. It does nothing after Close. The goroutine that replaced a version
// then closes the channel of the old version, so a reader that waits on the channel cannot miss the next
// version.
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
