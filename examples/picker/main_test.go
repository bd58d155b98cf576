package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestStartFails: a node that fails to start leaves nothing behind. TestMain checks that no goroutines remain.
func TestStartFails(t *testing.T) {
	if n, err := start(t.Context(), "an id with spaces", "cache"); err == nil {
		t.Error("it has started", n.end(t.Context()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := start(ctx, "cache-1", "cache"); err == nil {
		t.Error("it has started", n.end(t.Context()))
	}
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// four nodes: 100 of 100 keys of role cache are answered, by cache-1 and cache-2
	// four nodes: 100 of 100 keys of role worker are answered, by worker-1 and worker-2
	// cache-2 has left: 100 of 100 keys of role cache are answered, by cache-1
	// cache-2 has left: 100 of 100 keys of role worker are answered, by worker-1 and worker-2
}
