// Package netlab has only tests: of real agents, each in a network namespace of its own, with
// faults of the network and of the processes. The tests need root and nft. Those of
// make networks need control groups, too.
package netlab
