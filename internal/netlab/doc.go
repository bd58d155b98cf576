// Package netlab has only tests: of real agents, each in a network namespace of its own, on
// a bridge that drops what the test says. The tests need root and nft.
package netlab
