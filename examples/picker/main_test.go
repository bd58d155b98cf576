package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

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
