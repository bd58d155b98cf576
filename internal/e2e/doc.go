// Package e2e has the system tests, which test what a user of roost sees outside of a Go program.
//
//   - browser: the dashboard and the example of a media server in Chromium, commands on a terminal,
//     and answers of the API against its description
//   - helm, compose: the chart, the manifests and the Compose file under deploy/
//   - netlab: real agents in network namespaces, with faults of networks and processes
//
// They are a separate module, so that a program that uses roost does not depend on a browser driver, a pseudo
// terminal, Helm and the types of Kubernetes. Tests with a real Redis Cluster are next to the store
// (cluster/affinity/redisstore, because they use its internals) and in internal/fleettest.
package e2e
