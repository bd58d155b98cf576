// Package clusterotel shows in a trace what a join waits for, by the API of
// OpenTelemetry.
//
//	tracing := clusterotel.New(clusterotel.Options{})
//	rooms, err := affinity.Start(agent, tracing.Store(store), affinity.Config{Tracer: tracing})
//	…
//	api := clusterhttp.Handler(agent, clusterhttp.Options{Rooms: rooms})
//	http.ListenAndServe(addr, otelhttp.NewHandler(tracing.Handler(api), "roost"))
//
// A join that asks the agent beside it looks like this, with the client's spans
// above it if the trace comes that far:
//
//	POST /v1/rooms/{room}/resolve    otelhttp; http.route, http.response.status_code
//	├── roost.resolve                roost.partition, .source, .reason, .node, .epoch
//	│   ├── roost.store.swap         roost.ops
//	│   └── roost.store.sign         roost.asked: the pin names a node that may be dead
//	└── roost.host                   roost.hosted: on this node, or not
//
// The calls for HTTP are otelhttp's, of OpenTelemetry's contributed packages, which
// this package does not import: [Tracing.Handler] and [Tracing.Transport] go
// inside and tell its span the route.
//
// # Spans
//
// A resolve without a call of the store below it was answered by what is known
// (source cached), shares the answer of another one that had asked for the room
// just before, or went without: then it has the event "store not asked", since the
// circuit breaker is open, and the source degraded. A call whose caller gave up
// meanwhile may end after its parent.
//
// Rooms of a node that is gone get new homes by themselves: each batch of up to
// 4,096 rooms in up to 64 partitions is a trace of its own, roost.rehome, with
// the number of rooms, and how many were rehomed and are homeless.
//
// A span has the status Error if the call failed. That a room lives elsewhere,
// or was resolved without the store, is an answer; the call of the store that
// failed has the status then.
//
// # Guarantees
//
//  1. But for roost.rehome there is a span only below one that is recorded: what
//     goes on in the background, such as heartbeats and refreshed pins, has none. An
//     idle node makes no trace, however long it runs.
//  2. Without a provider of tracers, or below a span that is not recorded, a call
//     costs one look into its context.
//  3. No attribute, event or status holds the name of a room or a participant, which
//     may be personal data, or a key, or a token; not in otelhttp's spans either,
//     inside which Handler and Transport are. Errors show by their kinds. See
//     [Options].RoomNames.
package clusterotel
