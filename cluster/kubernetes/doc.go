// Package kubernetes configures a program that embeds roost from Kubernetes: which pods are its seeds, in
// which zone its own pod runs, and which labels it has. It also reports to Kubernetes when the node is ready.
//
//	o := kubernetes.Options{Service: "app", Pod: os.Getenv("POD_NAME")}
//	cfg, err := kubernetes.Configure(ctx, cluster.Config{Key: key}, o)
//	…
//	agent, err := cluster.Start(ctx, cfg)
//	…
//	go func() {
//		if err := kubernetes.ReportReady(ctx, agent, o); err != nil {
//			log.Print(err) // a right is missing, say: the pod stays not ready
//		}
//	}()
//
// deploy/kubernetes/embedded.yaml has a Deployment with the necessary permissions, and docs/kubernetes.md
// says which id a node should have. roost agent does not use this package. It needs no token of the API
// server, because it finds its seeds via DNS.
//
// # Guarantees
//
//  1. The API server is only asked for seeds, and never for who is alive. While it is away, members stay
//     members and own what they own, and the seeds of the latest list are used. A starting node waits.
//  2. A node does not start before its Service lists its pod. So a missing permission, a wrong name or a
//     selector that misses the pod cannot lead to a cluster of one node.
//  3. A request takes at most 5 s. If a permission is missing, the error names the rule to add to a role.
//  4. There are four kinds of requests: list the EndpointSlices of a Service, get the own pod, get its node
//     if the pod has no zone, and patch the status of the own pod.
//
// # Cost
//
// A node lists the endpoints every Config.RejoinInterval (default 10 s), from the memory of the API server.
// With more than 160 nodes, each lists less often, so that all together list at most 16 times a second.
package kubernetes
