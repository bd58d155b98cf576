// Package kubernetes configures a program that embeds roost with data from Kubernetes: the pods that are its
// seeds, and the zone and the labels of its own pod. The package also reports to Kubernetes when the node is
// ready and, with [ReportDeletionCost], how much load it has, so that a scale-in deletes the emptiest pods.
//
//	o := kubernetes.Options{Service: "app", Pod: os.Getenv("POD_NAME")}
//	cfg, err := kubernetes.Configure(ctx, cluster.Config{Key: key}, o)
//	…
//	agent, err := cluster.Start(ctx, cfg)
//	…
//	go func() {
//		if err := kubernetes.ReportReady(ctx, agent, o); err != nil {
//			log.Print(err) // for example, a permission is missing: the pod remains not ready
//		}
//	}()
//
// deploy/kubernetes/embedded.yaml contains a Deployment with the necessary permissions, and
// docs/kubernetes.md explains which ID a node should have. roost agent does not use this package. roost agent
// needs no token for the API server, because it finds its seeds via DNS.
//
// # Guarantees
//
//  1. The package asks the API server only for seeds, never for which nodes are live. While the API server is
//     down, members remain members and keep their partitions, and the node uses the seeds of the latest list.
//     A starting node waits for the API server.
//  2. A node does not start until its Service lists its pod. Therefore, a missing permission, a wrong name or
//     a selector that misses the pod cannot create a cluster of one node.
//  3. A request takes at most 5 s. If a permission is missing, the error names the rule to add to a role.
//  4. The package sends four kinds of requests: list the EndpointSlices of a Service, get its own pod, get
//     the Kubernetes node if the pod has no zone, and patch the status of the pod.
//
// # Cost
//
// A node lists the endpoints every Config.RejoinInterval (default 10 s), from the cache of the API server.
// With more than 160 nodes, each node lists less often, so that all nodes together list at most 16 times per
// second. A node patches its pod when it becomes ready or not ready, and at most every 30 s with its load.
package kubernetes
