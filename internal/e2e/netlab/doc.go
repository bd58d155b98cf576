// Package netlab only has tests of real agents, each in its own network namespace, with faults of the network
// and of the processes. The tests need root and nft. Those of make networks also need control groups.
package netlab
