// Package clusterotel traces joins of rooms with OpenTelemetry. The spans of a trace show the steps that a
// join waits for.
//
//	tracing := clusterotel.New(clusterotel.Options{})
//	rooms, err := affinity.Start(agent, tracing.Store(store), affinity.Config{Tracer: tracing})
//	…
//	api := clusterhttp.Handler(agent, clusterhttp.Options{Rooms: rooms})
//	http.ListenAndServe(addr, otelhttp.NewHandler(tracing.Handler(api), "roost"))
//
// A join over the API of the local agent has the following spans. If the client propagates its trace, they
// are below the client's spans:
//
//	POST /v1/rooms/{room}/resolve    otelhttp; http.route, http.response.status_code
//	├── roost.resolve                roost.partition, .source, .reason, .node, .epoch
//	│   ├── roost.store.swap         roost.ops
//	│   └── roost.store.heartbeat    roost.asked: the pin names a node that may be dead
//	└── roost.host                   roost.hosted: whether on this node
//
// The HTTP spans come from otelhttp, a contributed package of OpenTelemetry. This package does not import
// otelhttp. Place [Tracing.Handler] and [Tracing.Transport] inside otelhttp's handler and transport. Handler
// and Transport add the route to the spans of otelhttp.
//
// # Spans
//
// A resolve span without a store call has one of three reasons. Either the pin was cached (source cached), or
// a concurrent resolve for the same room makes the call, or the circuit breaker is open. If the breaker is
// open, the span has the event "store not asked" and the source degraded. A store call can end after its
// parent span if the caller stopped waiting.
//
// Rooms of a dead node move to live nodes in the background. Each batch of some thousand rooms in up to 64
// partitions is a separate trace, roost.failover. The trace has the number of rooms, the number of rooms that
// failed over, and the number of rooms without a home.
//
// A span has the status Error if its call failed. A room that is on another node, or that was resolved
// without the store, is not an error. If a store call failed, the span of that store call has the status
// Error.
//
// # Guarantees
//
//  1. Except for roost.failover, a span is only created below a recorded span. Background work, such as
//     heartbeats and refreshes of pins, has no spans, so an idle node creates no traces.
//  2. Without a tracer provider, or below a span that is not recorded, tracing a call only costs one read of
//     the context.
//  3. No attribute, event or status contains a key, a token, or the name of a room or of a participant, which
//     can be personal data. The same applies to the otelhttp spans around Handler and Transport. Spans show
//     only the kind of an error. See [Options].RoomNames for an exception.
package clusterotel
