package clusterotel

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"syscall"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// Options configure a [Tracing]. The zero value of each field means its default.
type Options struct {
	// Provider creates the spans. Default otel.GetTracerProvider(). That global provider can also be set
	// after New.
	Provider trace.TracerProvider

	// RoomNames adds the names of rooms to spans: in the attribute roost.room, in URLs, and in the full text
	// of errors. Default false.
	RoomNames bool
}

// Tracing creates spans. All methods are safe for concurrent use.
type Tracing struct {
	tracer trace.Tracer
	names  bool
}

var _ affinity.Tracer = (*Tracing)(nil)

// New returns a Tracing. A Tracing starts no goroutine and needs no Close.
func New(opts Options) *Tracing {
	provider := opts.Provider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracing{provider.Tracer("github.com/roost-cluster/roost/cluster/clusterotel"), opts.RoomNames}
}

// Begin implements [affinity.Tracer].
func (t *Tracing) Begin(ctx context.Context, call, room string) (context.Context, func(affinity.Assignment, error)) {
	if !traced(ctx) {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, "roost."+call)
	if t.names {
		span.SetAttributes(attribute.String("roost.room", room))
	}
	return ctx, func(a affinity.Assignment, err error) {
		if a.Source != 0 {
			span.SetAttributes(
				attribute.Int("roost.partition", int(a.Partition)), attribute.String("roost.source", a.Source.String()),
				attribute.String("roost.reason", a.Reason), attribute.String("roost.node", string(a.Node)),
				attribute.Int64("roost.epoch", int64(a.Epoch))) // an epoch is below 2^53
		}
		if call == "host" {
			span.SetAttributes(attribute.Bool("roost.hosted", err == nil))
		}
		if errors.Is(err, affinity.ErrNotOwner) {
			err = nil
		}
		t.end(span, err)
	}
}

// Unasked implements [affinity.Tracer].
func (t *Tracing) Unasked(ctx context.Context, why error) {
	if traced(ctx) {
		trace.SpanFromContext(ctx).AddEvent("store not asked", trace.WithAttributes(attribute.String("roost.why", why.Error())))
	}
}

// Failover implements [affinity.Tracer].
func (t *Tracing) Failover(ctx context.Context, rooms int) (context.Context, func(failedOver, homeless int, err error)) {
	ctx, span := t.tracer.Start(ctx, "roost.failover", trace.WithAttributes(attribute.Int("roost.rooms", rooms)))
	return ctx, func(failedOver, homeless int, err error) {
		span.SetAttributes(attribute.Int("roost.failed_over", failedOver), attribute.Int("roost.homeless", homeless))
		t.end(span, err)
	}
}

// traced reports whether the span of ctx is recorded.
func traced(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// begin starts a span with a count, if the span of ctx is recorded.
func (t *Tracing) begin(ctx context.Context, name, what string, n int) (_ context.Context, end func(error)) {
	if !traced(ctx) {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attribute.Int(what, n)))
	return ctx, func(err error) { t.end(span, err) }
}

func (t *Tracing) end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, t.textOf(err))
	}
	span.End()
}

// textOf describes err. The description contains only known kinds of errors. The text of an error can contain
// the name of a room or a key, and the text of a store's error can contain anything.
func (t *Tracing) textOf(err error) string {
	if t.names {
		return err.Error()
	}
	var kinds []string
	for _, kind := range []error{
		affinity.ErrName, affinity.ErrDemand, affinity.ErrNoCapacity, affinity.ErrRequire, affinity.ErrNoPin, affinity.ErrNotLive,
		affinity.ErrChanged, pinstore.ErrStore, affinity.ErrSettings, affinity.ErrFenced, affinity.ErrClosed,
		presence.ErrName, presence.ErrStore, presence.ErrClosed, cluster.ErrNotReady,
		cluster.ErrNoMembers, cluster.ErrClosed, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, kind) {
			kinds = append(kinds, kind.Error())
		}
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		kinds = append(kinds, no.Error())
	}
	return cmp.Or(strings.Join(kinds, ": "), "an error of another kind")
}
