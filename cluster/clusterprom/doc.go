// Package clusterprom exports what an agent, and its rooms, know and do as
// Prometheus metrics.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(clusterprom.New(agent, nil))
//	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// The metrics are listed in docs/metrics.md; alerts, recording rules and a
// dashboard that use them are in deploy/.
//
// # Guarantees
//
//  1. Nothing is registered, and nothing runs, but what the caller registers: the
//     figures are read when somebody scrapes.
//  2. Lookups pay nothing for being measured: a scrape times some of its own.
//  3. The number of series does not depend on nodes, partitions, keys or rooms. A
//     scrape takes one pass over the members and one over the partitions.
//
// # What it does not tell
//
// Everything is one node's view; what concerns the cluster is for rules to put
// together. Figures are as of the agent's latest snapshot, which is renewed at
// least with every heartbeat. How far a subscriber lags behind is not known:
// events are read, not sent, and who reads them leaves no trace.
package clusterprom
