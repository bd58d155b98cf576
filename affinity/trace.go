package affinity

import "context"

// Tracer is told of what callers wait for, and of what rooms of the dead wait
// for, to show it in a trace: package clusterotel has one for OpenTelemetry. The
// values of a context that it returns reach the Store. Its methods are called from
// any goroutine, must not wait, and do not call the Resolver.
type Tracer interface {
	// Begin is called with each "resolve" and "host" of a room. What end is called
	// with is what the caller gets; of a NotOwnerError, the owner's assignment, too.
	// A nil end wants to hear nothing.
	//
	// Of several callers who share an answer (see Resolve), only one's context
	// reaches the Store.
	Begin(ctx context.Context, call, room string) (_ context.Context, end func(Assignment, error))

	// Unasked is called when somebody's call goes on without asking the store,
	// because it hangs.
	Unasked(ctx context.Context, why error)

	// Rehome is called when rooms of the dead were found, up to 4,096 in up to 64
	// partitions, and are about to get new homes. end, which may be nil, is told how
	// many got one from this instance, how many have none yet, and why the last of these.
	Rehome(ctx context.Context, rooms int) (_ context.Context, end func(rehomed, homeless int, err error))
}

// begin tells the tracer, if there is one.
func (r *Resolver) begin(ctx context.Context, call, room string) (context.Context, func(Assignment, error)) {
	if r.cfg.Tracer == nil {
		return ctx, nil
	}
	return r.cfg.Tracer.Begin(ctx, call, room)
}
