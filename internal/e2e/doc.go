// Package e2e contains the system tests. They test what users of roost see outside a Go program.
//
//   - browser: the dashboard and the media server example in Chromium, commands on a terminal,
//     and API responses, compared with the OpenAPI description
//   - npm: the OpenAPI description, with a linter and a client generator, and the npm packages
//   - helm, compose: the Helm chart, the manifests and the Compose file under deploy/
//   - netlab: real agents in network namespaces, with network and process faults
//
// The system tests are a separate module, so that a program that uses roost does not depend on a browser driver,
// a pseudo-terminal library, Helm or the Kubernetes types. The tests with a real Redis Cluster are in
// internal/fleettest. Tests that use internals of the store are in cluster/affinity/redisstore instead.
package e2e
