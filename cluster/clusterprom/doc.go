// Package clusterprom exports Prometheus metrics of an agent and its rooms.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(clusterprom.New(agent, nil))
//	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// docs/metrics.md lists the metrics; deploy/ has alerts, recording rules and a dashboard
// for them.
//
// # Guarantees
//
//  1. The package starts no goroutine and registers nothing by itself: it reads the
//     values at each scrape.
//  2. Lookups of the application cost nothing extra: a scrape times its own lookups.
//  3. The number of series does not depend on nodes, partitions, keys or rooms. A
//     scrape takes one pass over the members and one over the partitions.
//
// # Limits
//
// All values are one node's view; recording rules combine them for the cluster. Values are
// as of the agent's latest snapshot, which is renewed at least with every heartbeat. The
// lag of a reader of events is a number of states, not a time.
package clusterprom
