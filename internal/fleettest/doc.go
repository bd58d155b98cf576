// Package fleettest has only tests: of the affinity layer on real parts, namely agents that
// gossip over loopback, Redis servers, and processes that are killed. Tests on
// virtual time are with the code.
package fleettest
