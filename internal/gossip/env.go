package gossip

import (
	"context"
	"time"

	"github.com/hashicorp/memberlist"
)

// Env contains the parts of the environment that tests of whole clusters replace. It is passed in the context
// of Start, so it does not appear in any configuration.
type Env struct {
	Transport   memberlist.NodeAwareTransport // instead of sockets
	ClockOffset time.Duration                 // of this node's wall clock
	Gate        func()                        // blocks while the process simulates a pause
}

type envKey struct{}

// WithEnv returns a context in which nodes use e.
func WithEnv(ctx context.Context, e Env) context.Context {
	return context.WithValue(ctx, envKey{}, e)
}

// EnvOf returns the Env of ctx. Its Gate is never nil.
func EnvOf(ctx context.Context) Env {
	e, _ := ctx.Value(envKey{}).(Env)
	if e.Gate == nil {
		e.Gate = func() {}
	}
	return e
}
