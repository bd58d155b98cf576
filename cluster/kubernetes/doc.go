// Package kubernetes gives a program that embeds roost the facts of Kubernetes: which pods are its seeds, in
// which zone its own pod runs, which labels it has. It reports to Kubernetes when the node is ready.
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
// deploy/kubernetes/embedded.yaml has a Deployment with the rights that this takes, docs/kubernetes.md says
// which id a node should have. roost agent does without this package: it has no token of the API server, and
// finds its seeds by DNS.
//
// # Guarantees
//
//  1. The API server is asked for seeds, and never for who is alive. While it is away, members stay members and own what they own,
//     and the seeds of the latest list count; a node that starts waits.
//  2. A node does not start before its Service lists its pod, so a missing right, a wrong name or a selector that misses the pod does
//     not make a cluster of one node.
//  3. A request takes 5 s at most. An error of a missing right names the rule that a role has to get.
//  4. There are four requests: list the EndpointSlices of one Service, get the own pod, get its node unless the pod has a zone,
//     patch the status of the own pod.
//
// # Cost
//
// A node lists the endpoints each Config.RejoinInterval, 10 s by default, from the memory of the API server.
// With more than 160 nodes each lists less often, so that all together list 16 times a second at most.
package kubernetes
