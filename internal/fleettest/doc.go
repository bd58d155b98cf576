// Package fleettest contains only tests. They test the affinity layer with real agents that gossip over
// loopback, real Redis servers, and processes that are killed. Tests in virtual time are next to the code
// that they test.
package fleettest
