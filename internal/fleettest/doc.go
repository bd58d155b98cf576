// Package fleettest has nothing but tests: of the affinity layer on real parts,
// which are agents that gossip over loopback, Redis servers, and processes that
// are killed and stopped. What can be shown on virtual time is shown beside the
// code.
package fleettest
