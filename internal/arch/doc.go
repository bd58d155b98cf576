// Package arch holds the import rules of the module, as a test.
//
// The rules keep three promises. The kernel (lease, placement, events) can be
// tested without a socket or a clock. An arrow between packages has one
// direction, so that a package can be understood from those that it imports. And
// a program that embeds the agent compiles no Redis or Prometheus client, and no
// OpenTelemetry, that it did not ask for.
//
// A new package fails the test until it has a row in the table house.
package arch
