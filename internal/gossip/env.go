package gossip

import (
	"context"
	"time"

	"github.com/hashicorp/memberlist"
)

// Env is what tests of whole clusters replace. It travels in the context that
// an agent is started with, so that no configuration shows it.
type Env struct {
	Transport   memberlist.NodeAwareTransport // instead of sockets
	ClockOffset time.Duration                 // of this node's wall clock
	Gate        func()                        // waits while the process is to seem stopped
}

type envKey struct{}

// WithEnv returns a context under which nodes run in e.
func WithEnv(ctx context.Context, e Env) context.Context {
	return context.WithValue(ctx, envKey{}, e)
}

// EnvOf returns the Env of ctx; its Gate is never nil.
func EnvOf(ctx context.Context) Env {
	e, _ := ctx.Value(envKey{}).(Env)
	if e.Gate == nil {
		e.Gate = func() {}
	}
	return e
}
