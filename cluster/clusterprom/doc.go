// Package clusterprom exports Prometheus metrics of an agent and its rooms.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(clusterprom.New(agent, nil))
//	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// docs/metrics.md lists the metrics. deploy/ has alerts, recording rules and a dashboard for them.
//
// # Guarantees
//
//  1. The package starts no goroutine and registers nothing by itself. It reads the values at each scrape.
//  2. The application's lookups are not slowed down, because a scrape times its own lookups.
//  3. The number of series does not depend on nodes, partitions, keys or rooms. A
//     scrape takes one pass over the members and one over the partitions.
//
// # Limits
//
// All values are the view of one node. Recording rules combine them for the cluster. Values are as of the
// agent's latest snapshot, which is renewed at least with every heartbeat. The lag of a reader of events is a
// number of states and not a time.
package clusterprom
