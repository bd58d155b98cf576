// Package clusterprom exports Prometheus metrics of an agent and its rooms.
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(clusterprom.New(agent, nil))
//	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// docs/metrics.md lists the metrics. deploy/ contains alerts, recording rules and a dashboard for them.
//
// # Guarantees
//
//  1. The package starts no goroutine and registers nothing by itself. It reads the values at each scrape.
//  2. The package does not slow down lookups of the application, because each scrape measures its own
//     lookups.
//  3. The number of series does not depend on the number of nodes, partitions, keys or rooms. A scrape makes
//     one pass over the members and one pass over the partitions.
//
// # Limits
//
// All values are the view of one node. Recording rules combine the values of all nodes for the cluster. The
// values come from the agent's latest snapshot, which the agent renews at least with every heartbeat. The lag
// of a reader of events is a number of states, not a time.
package clusterprom
