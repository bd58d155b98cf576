// Package clusterotel traces joins of rooms with OpenTelemetry. The spans of a trace show the steps that a
// join waits for.
//
//	tracing := clusterotel.New(clusterotel.Options{})
//	rooms, err := affinity.Start(agent, tracing.Store(store), affinity.Config{Tracer: tracing})
//	…
//	api := clusterhttp.Handler(agent, clusterhttp.Options{Rooms: rooms})
//	http.ListenAndServe(addr, otelhttp.NewHandler(tracing.Handler(api), "roost"))
//
// A join over the API of the local agent has these spans, below those of the client if it
// propagates its trace:
//
//	POST /v1/rooms/{room}/resolve    otelhttp; http.route, http.response.status_code
//	├── roost.resolve                roost.partition, .source, .reason, .node, .epoch
//	│   ├── roost.store.swap         roost.ops
//	│   └── roost.store.heartbeat    roost.asked: the pin names a node that may be dead
//	└── roost.host                   roost.hosted: whether on this node
//
// The HTTP spans come from otelhttp, a contributed package of OpenTelemetry that this package does not
// import. [Tracing.Handler] and [Tracing.Transport] go inside it and add the route to its spans.
//
// # Spans
//
// A resolve span without a call of the store has one of three reasons: the pin was cached
// (source cached), the resolve shares the call of a concurrent resolve for the same room,
// or the circuit breaker is open. In the last case the span has the event "store not
// asked" and the source degraded. A call of the store may end after its parent span if
// the caller gave up.
//
// Rooms of a dead node move to live nodes in the background. Each batch of some thousand rooms in up to 64
// partitions is a separate trace, roost.failover, with the number of rooms, of rooms that failed over and of
// rooms without a home.
//
// A span has the status Error if the call failed. It is not an error if a room is on another node or was
// resolved without the store, but the failed call of the store has the status Error.
//
// # Guarantees
//
//  1. Except for roost.failover, a span is only created below a recorded span. Background work, such as
//     heartbeats and refreshes of pins, has no spans, so an idle node creates no traces.
//  2. Without a provider of tracers, or below a span that is not recorded, a call costs
//     one read of its context.
//  3. No attribute, event or status holds the name of a room or of a participant, which
//     may be personal data, nor a key, nor a token. That includes the spans of otelhttp
//     around Handler and Transport. Errors appear by kind. See [Options].RoomNames.
package clusterotel
