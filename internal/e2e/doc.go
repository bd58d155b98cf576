// Package e2e holds the system tests: what a user of roost meets outside of a Go program.
//
//   - browser: the dashboard and the example of a media server in Chromium, commands on a terminal,
//     and answers of the API against its description
//   - helm, compose: the chart, the manifests and the Compose file under deploy/
//   - netlab: real agents in network namespaces, with faults of networks and processes
//
// They are one module of their own, so that a driver of a browser, a pseudo terminal, Helm and the types of Kubernetes
// are no requirements of a program that uses roost. Tests against a real Redis Cluster are with the store
// (cluster/affinity/redisstore, which they see from inside) and in internal/fleettest.
package e2e
