// Package fleettest only has tests of the affinity layer with real parts: agents that gossip over loopback,
// Redis servers, and processes that are killed. Tests in virtual time are next to the code.
package fleettest
