// Package arch contains a test that enforces the import rules of this module.
//
// The rules have three purposes. Tests of the core (lease, placement, events) need no socket and no clock.
// Imports go in one direction, so that a package can be understood from its imports alone. A program that
// embeds the agent does not compile a Redis client, a Prometheus client or OpenTelemetry unless it imports
// them.
//
// The test fails for a new package until the table house has a row for the package.
package arch
