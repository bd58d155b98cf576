package latest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestValue(t *testing.T) {
	var v Value[string] // the zero value must work
	expect := func(step, value string, open bool) <-chan struct{} {
		t.Helper()
		got, replaced := v.Get()
		if *got != value || *v.Load() != value || (replaced != nil) != open || closed(replaced) {
			t.Fatalf("%s: Get = %q, %v (closed: %v); want %q, an open channel: %v",
				step, *got, replaced, closed(replaced), value, open)
		}
		return replaced
	}
	zero := expect("zero value", "", true)
	if again := expect("zero value, second reader", "", true); again != zero {
		t.Fatal("two readers wait on different channels: one of them would never wake up")
	}
	v.Set("one")
	if !closed(zero) {
		t.Fatal("the first Set wakes no reader")
	}
	one := expect("first Set", "one", true)
	v.Set("two")
	if !closed(one) {
		t.Fatal("the second Set wakes no reader")
	}
	two := expect("second Set", "two", true)
	v.Close()
	if !closed(two) {
		t.Fatal("Close wakes no reader")
	}
	expect("Close", "two", false)
	v.Close()
	v.Set("three")
	expect("Set after Close", "two", false)

	var empty Value[*int]
	empty.Close()
	if value, replaced := empty.Get(); *value != nil || replaced != nil {
		t.Errorf("closed without a value: Get = %v, %v; want nil, nil", *value, replaced)
	}
}

func TestReadersReachTheLastValue(t *testing.T) {
	const last = 2000
	var v Value[int]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			seen := 0
			for {
				value, replaced := v.Get()
				if *value < seen {
					t.Errorf("value %d after %d", *value, seen)
				}
				seen = *value
				if replaced == nil {
					break
				}
				if seen%2 == 0 { // half of the readers wait, the other half spin
					<-replaced
				}
			}
			if seen != last {
				t.Errorf("ends at %d, want %d", seen, last)
			}
		})
	}
	for n := range last {
		v.Set(n + 1)
	}
	v.Close()
	wg.Wait()
}

// Set must not undo a concurrent Close.
func TestCloseDuringSet(t *testing.T) {
	type round struct {
		Value[int]
		ready atomic.Int32
	}
	rounds := make([]round, 20_000)
	// Both goroutines start each round at nearly the same time.
	together := func(act func(*Value[int])) {
		for i := range rounds {
			for rounds[i].ready.Add(1); rounds[i].ready.Load() < 2; {
				runtime.Gosched()
			}
			act(&rounds[i].Value)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { together((*Value[int]).Close) })
	wg.Go(func() {
		together(func(v *Value[int]) {
			v.Set(1)
			v.Close()
		})
	})
	wg.Wait()
	for i := range rounds {
		if _, replaced := rounds[i].Get(); replaced != nil {
			t.Fatalf("value %d is open", i)
		}
	}
}
