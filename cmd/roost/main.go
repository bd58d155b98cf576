// Command roost runs a node of a cluster, and asks running ones who owns what.
// `roost --help` lists what it does.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
