package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/roost-cluster/roost/cluster"
)

// directory finds the pods of a Service.
type directory struct {
	api           *api
	service, port string
	near          netip.Addr // gossip address of this node
	log           *slog.Logger
	failing       atomic.Bool
	last          atomic.Pointer[list] // initially the list of Configure
}

type list struct {
	seeds []string
	until time.Time // when the next list is due
}

// listEvery is the time between two list requests of all nodes together. In a cluster of n nodes, each node
// waits n times as long.
const listEvery = time.Second / 16

var _ = cluster.Config{Discover: (*directory)(nil).seeds}

// seeds implements Config.Discover. While the API server does not answer, seeds returns the seeds of the
// latest list, because a starting node without seeds would start alone. seeds logs when discovery starts to
// fail and when it works again.
func (d *directory) seeds(ctx context.Context) ([]string, error) {
	last := d.last.Load()
	if time.Now().Before(last.until) {
		return last.seeds, nil
	}
	found, err := d.list(ctx)
	switch {
	case err == nil:
		seeds := found.seeds()
		d.last.Store(&list{seeds, time.Now().Add(time.Duration(len(seeds)) * listEvery)})
		if d.failing.Swap(false) {
			d.log.Info("discovery works again", "seeds", len(seeds))
		}
		return seeds, nil
	case ctx.Err() == nil && !d.failing.Swap(true):
		d.log.Warn("discovery failed; keeping the latest seeds", "seeds", len(last.seeds), "err", err)
	}
	return last.seeds, nil
}

// list asks the API server for the pods of the Service.
func (d *directory) list(ctx context.Context) (*pods, error) {
	all, err := d.api.slices(ctx, d.service)
	if err != nil {
		return nil, err
	}
	// If there is no slice, the Service does not exist: Kubernetes creates an empty slice for a Service that
	// selects no pod.
	if len(all) == 0 {
		return nil, fmt.Errorf("kubernetes: there is no service %s in the namespace %s, or it has no selector", d.service, d.api.namespace)
	}
	found := podsOf(all, d.port, d.near)
	if len(found.near)+len(found.far) == 0 && len(found.others) > 0 {
		return nil,
			fmt.Errorf("kubernetes: the service %s in the namespace %s has no port %q, but %s: give the gossip port this name, or set Options.Port",
				d.service, d.api.namespace, d.port, strings.Join(found.others, ", "))
	}
	return found, nil
}

// lists returns an error unless the Service lists the node's own pod.
func (d *directory) lists(found *pods, pod *corev1.Pod) error {
	own := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		own = append(own, ip.IP)
	}
	own = unique(own)
	for _, seed := range slices.Concat(found.near, found.far) {
		if host, _, err := net.SplitHostPort(seed); err == nil && slices.Contains(own, host) {
			return nil
		}
	}
	what := fmt.Sprintf("kubernetes: the service %s in the namespace %s does not list the pod %s (%s)",
		d.service, d.api.namespace, pod.Name, strings.Join(own, ", "))
	if slices.ContainsFunc(found.addresses, func(a string) bool { return slices.Contains(own, a) }) {
		return fmt.Errorf("%s with a port %q: add one to the service; if its targetPort is a name, the pod's container needs a port of that name",
			what, d.port)
	}
	return fmt.Errorf("%s: compare the selector of the service with the labels of the pod", what)
}

// pods contains the pods of a Service, separated by address family. If a pod has addresses of both families, it gossips
// at only one of them, and the agent would never stop trying the other address.
type pods struct {
	near, far []string // host:port: near with the address family of this node, far with the other family
	addresses []string // all addresses, whether or not the pod has a port with the right name
	others    []string // names of other ports
}

func (p *pods) seeds() []string {
	if len(p.near) == 0 {
		return p.far
	}
	return p.near
}

// podsOf returns all pods, even if they are not ready. When a cluster starts, no pod is ready yet. A terminating pod is
// also useful, because it still knows the members.
func podsOf(found []discoveryv1.EndpointSlice, name string, self netip.Addr) *pods {
	p := new(pods)
	for _, s := range found {
		ports, more := portsOf(s, name)
		if len(s.Endpoints) > 0 {
			p.others = append(p.others, more...)
		}
		into := &p.far
		if self.Is4() == (s.AddressType == discoveryv1.AddressTypeIPv4) {
			into = &p.near
		}
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				if _, err := netip.ParseAddr(address); err != nil {
					continue // skip host names
				}
				p.addresses = append(p.addresses, address)
				for _, port := range ports {
					*into = append(*into, net.JoinHostPort(address, port))
				}
			}
		}
	}
	p.near, p.far, p.others = unique(p.near), unique(p.far), unique(p.others)
	return p
}

// portsOf returns the ports with this name, and the names of the others.
func portsOf(s discoveryv1.EndpointSlice, name string) (ports, others []string) {
	for _, p := range s.Ports {
		switch {
		case p.Port == nil || p.Name == nil:
		case *p.Name == name:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		default:
			others = append(others, strconv.Quote(*p.Name))
		}
	}
	return ports, others
}

func unique(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
