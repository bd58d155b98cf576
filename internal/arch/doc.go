// Package arch holds the import rules of the module, as a test.
//
// The rules have three purposes. Tests of the core (lease, placement, events) need no socket and no clock.
// Imports go in one direction, so that a package can be understood from its imports alone. A program that
// embeds the agent does not compile a Redis client, a Prometheus client or OpenTelemetry unless it imports
// them.
//
// A new package fails the test until it has a row in the table house.
package arch
