package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/roost-cluster/roost/cluster"
)

// Options specifies where this node runs. Only Service is required. The zero value of every other field means
// its default.
type Options struct {
	// Service is the name of a Service that selects the pods of all nodes, including this one. A Service that
	// only selects seeds is not enough. The Service can be headless, and it does not need to publish
	// addresses that are not ready.
	Service string

	// Port is the name of the Service port on which the pods gossip. Default "gossip".
	Port string

	// Namespace is the namespace of the pod and the Service. Default: the namespace of the pod's service
	// account.
	Namespace string

	// Pod is the name of the pod that this process runs in. Default: the host name, which is the name of the
	// pod unless its spec sets a host name or hostNetwork.
	Pod string

	// Labels are the keys of pod labels to copy to the member. Labels that the pod does not have are omitted.
	Labels []string

	// API specifies how to reach the API server and how to authenticate. By default, the node uses the token of the
	// pod's service account.
	API *rest.Config
}

// portName is the default of Options.Port, and port is the default port for gossip.
const (
	portName = "gossip"
	port     = "7946"
)

// Configure adds to cfg what Kubernetes knows about the pod that this process runs in. Configure waits until
// the API server answers, the pod has an address, and the Service lists the pod. A node that cannot look for
// other nodes must not start alone, and a Service whose selector misses this pod may also miss the other
// pods. Configure waits at most until ctx ends, and logs what it is waiting for. If a permission is missing,
// Configure fails immediately, and the error names the permission.
//
// Configure sets these fields if they are empty in cfg:
//
//	ID         the name of the pod
//	Cluster    NAMESPACE.SERVICE, so that clusters whose pods reuse addresses stay apart
//	Bind       the address of the pod, port 7946
//	Advertise  the address of the pod, if Bind is all addresses
//	Zone       the label topology.kubernetes.io/zone of the pod, or else of its node
//	Labels     the labels of the pod that Options.Labels names
//	Discover   the pods that the Service selects, ready or not
func Configure(ctx context.Context, cfg cluster.Config, o Options) (cluster.Config, error) {
	switch {
	case o.Service == "":
		return cfg, errors.New("kubernetes: Options.Service is empty: name a Service that selects the pods of all nodes")
	case cfg.Discover != nil:
		return cfg, errors.New("kubernetes: Config.Discover is already set, but Configure sets it: leave it empty")
	}
	a, err := open(o)
	if err != nil {
		return cfg, err
	}
	log := cmp.Or(cfg.Log, slog.Default())
	d := &directory{api: a, service: o.Service, port: cmp.Or(o.Port, portName), log: log}
	var seeds []string
	given := cfg
	err = retry(ctx, log, final, func() error {
		cfg = given // start from the given cfg, because the pod may have changed since the last attempt
		pod, err := a.ownPod(ctx)
		if err != nil {
			return err
		}
		if d.near, err = netip.ParseAddr(pod.Status.PodIP); err != nil {
			return fmt.Errorf("kubernetes: pod %s has no address yet", a.pod)
		}
		address(&cfg, pod.Status.PodIP)
		cfg.ID = cmp.Or(cfg.ID, pod.Name)
		cfg.Cluster = cmp.Or(cfg.Cluster, clusterName(a.namespace, o.Service))
		label(&cfg, pod, o.Labels)
		if err := a.zone(ctx, &cfg, pod); err != nil {
			return err
		}
		if near := gossipsAt(cfg); near.IsValid() {
			d.near = near
		}
		found, err := d.list(ctx)
		if err != nil {
			return err
		}
		seeds = found.seeds()
		return d.lists(found, pod)
	})
	if err != nil {
		return cfg, err
	}
	d.last.Store(&list{seeds: seeds})
	cfg.Discover = d.seeds
	return cfg, nil
}

// gossipsAt returns the address at which others reach the node, or the zero Addr if cfg does not specify it.
func gossipsAt(cfg cluster.Config) netip.Addr {
	for _, s := range []string{cfg.Advertise, cfg.Bind} {
		if at, err := netip.ParseAddrPort(s); err == nil && !at.Addr().IsUnspecified() {
			return at.Addr().Unmap()
		}
	}
	return netip.Addr{}
}

// clusterName returns the name of the cluster behind a Service, at most 64 bytes long.
func clusterName(namespace, service string) string {
	name := namespace + "." + service
	if len(name) > 64 {
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprintf("%.47s-%x", name, sum[:8])
	}
	return name
}

// address makes the node gossip at the address of its pod.
func address(cfg *cluster.Config, ip string) {
	cfg.Bind = cmp.Or(cfg.Bind, net.JoinHostPort(ip, port))
	host, port, err := net.SplitHostPort(cfg.Bind)
	if at, _ := netip.ParseAddr(host); err == nil && port != "0" && (host == "" || at.IsUnspecified()) {
		cfg.Advertise = cmp.Or(cfg.Advertise, net.JoinHostPort(ip, port))
	}
}

func label(cfg *cluster.Config, pod *corev1.Pod, keys []string) {
	labels := make(map[string]string)
	for _, key := range keys {
		if value, ok := pod.Labels[key]; ok {
			labels[key] = value
		}
	}
	maps.Copy(labels, cfg.Labels)
	if len(labels) > 0 {
		cfg.Labels = labels
	}
}

// zone gets the Kubernetes node from the API server only if the pod has no zone label. Since Kubernetes 1.35,
// all pods have that label, so roost does not need permission to get nodes.
func (a *api) zone(ctx context.Context, cfg *cluster.Config, pod *corev1.Pod) error {
	cfg.Zone = cmp.Or(cfg.Zone, pod.Labels[corev1.LabelTopologyZone])
	if cfg.Zone != "" {
		return nil
	}
	node, err := a.node(ctx, pod.Spec.NodeName)
	if err == nil {
		cfg.Zone = node.Labels[corev1.LabelTopologyZone]
	}
	return err
}
