// Package netlab contains only tests. They run real agents, each in its own network namespace, and inject
// faults into the network and the processes. All tests need root and nft. The tests of "make networks" also
// need control groups.
package netlab
