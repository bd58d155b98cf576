// Command embedder is the smallest program that embeds a node.
package main

import (
	"context"

	"github.com/roost-cluster/roost/cluster"
)

func main() {
	agent, err := cluster.Start(context.Background(), cluster.Config{})
	if err != nil {
		panic(err)
	}
	<-agent.Done()
}
