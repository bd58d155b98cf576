package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const namespace = "media"

// server implements the part of the Kubernetes API that the package uses, over real connections or in memory. It allows
// exactly what the manifest's roles allow.
type server struct {
	mu      sync.Mutex
	state   string // "" if the server answers, or "down", "hangs" or "busy"
	slices  map[string]discoveryv1.EndpointSlice
	pods    map[string]corev1.Pod
	nodes   map[string]corev1.Node
	rules   []rbacv1.PolicyRule
	asked   []string // "verb resource" of each request, or the state
	patched []string // the condition's status, each time that it was set
	onPatch func()
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{slices: map[string]discoveryv1.EndpointSlice{}, pods: map[string]corev1.Pod{}, nodes: map[string]corev1.Node{}}
	text, err := os.ReadFile("../../deploy/kubernetes/embedded.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.Role // or a ClusterRole, with the same field
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		s.rules = append(s.rules, role.Rules...)
	}
	s.nodes["node-1"] = corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
	}
	s.serve("app", "sfu", 0) // what Kubernetes makes for a Service without pods
	return s
}

// over starts the server on real connections.
func (s *server) over(t *testing.T) *rest.Config {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	cfg := &rest.Config{Host: srv.URL, BearerToken: "token"}
	t.Cleanup(func() {
		if c, err := rest.HTTPClientFor(cfg); err == nil {
			c.CloseIdleConnections()
		}
	})
	return cfg
}

// inMemory starts the server without connections, for synctest bubbles.
func (s *server) inMemory() *rest.Config {
	return &rest.Config{Host: "http://kubernetes", BearerToken: "token", Transport: s}
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.is() == "down" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: io.EOF}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *server) is() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *server) become(state string) { s.change(func() { s.state = state }) }

// change changes objects.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// pod adds a running pod.
func (s *server) pod(name, ip string, labels map[string]string) {
	s.change(func() {
		s.pods[name] = corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "node-1", ReadinessGates: []corev1.PodReadinessGate{{ConditionType: ReadyCondition}}},
			Status:     corev1.PodStatus{PodIP: ip},
		}
	})
}

// dual adds a pod with an IPv4 and an IPv6 address.
func (s *server) dual(name, first, second string) {
	s.pod(name, first, nil)
	s.change(func() {
		pod := s.pods[name]
		pod.Status.PodIPs = []corev1.PodIP{{IP: first}, {IP: second}}
		s.pods[name] = pod
	})
}

// serve adds a slice of a service with a port. It replaces a slice with the same name.
func (s *server) serve(name, service string, port int32, addresses ...string) {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, address := range addresses {
		if strings.Contains(address, ":") {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false)},
		})
	}
	if port != 0 {
		udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
		slice.Ports = []discoveryv1.EndpointPort{
			{Name: new("gossip"), Port: &port, Protocol: &udp},
			{Name: new("gossip-stream"), Port: &port, Protocol: &tcp},
		}
	}
	s.change(func() { s.slices[name] = slice })
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch s.is() {
	case "down":
		s.change(func() { s.asked = append(s.asked, "down") })
		panic(http.ErrAbortHandler)
	case "hangs":
		<-r.Context().Done()
		return
	case "busy":
		http.Error(w, "apiserver is shutting down", http.StatusServiceUnavailable)
		return
	}
	if r.Header.Get("Authorization") != "Bearer token" {
		answer(w, apierrors.NewUnauthorized("Unauthorized").Status(), http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	group, path := "", strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if rest, ok := strings.CutPrefix(r.URL.Path, "/apis/discovery.k8s.io/v1/"); ok {
		group, path = discoveryv1.GroupName, rest
	}
	path = strings.TrimPrefix(path, "namespaces/"+namespace+"/")
	resource, name, _ := strings.Cut(path, "/")
	name, sub, _ := strings.Cut(name, "/")
	verb := map[bool]string{true: "get", false: "list"}[name != ""]
	if r.Method == http.MethodPatch {
		verb, resource = "patch", resource+"/"+sub
	}
	s.asked = append(s.asked, verb+" "+resource)
	if !slices.ContainsFunc(s.rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
	}) {
		err := fmt.Errorf("User %q cannot %s resource %q in API group %q", "system:serviceaccount:media:app", verb, resource, group)
		answer(w, apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name, err).Status(), http.StatusForbidden)
		return
	}
	s.do(w, r, resource, name)
}

func (s *server) do(w http.ResponseWriter, r *http.Request, resource, name string) {
	switch resource {
	case "endpointslices":
		service := strings.TrimPrefix(r.URL.Query().Get("labelSelector"), discoveryv1.LabelServiceName+"=")
		list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
		for _, key := range slices.Sorted(maps.Keys(s.slices)) {
			if s.slices[key].Labels[discoveryv1.LabelServiceName] == service {
				list.Items = append(list.Items, s.slices[key])
			}
		}
		answer(w, list, http.StatusOK)
		return
	case "nodes":
		if node, ok := s.nodes[name]; ok {
			node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			answer(w, node, http.StatusOK)
			return
		}
	case "pods", "pods/status":
		if pod, ok := s.pods[name]; ok {
			if resource == "pods/status" {
				s.patch(r, &pod)
				s.pods[name] = pod
			}
			pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			answer(w, pod, http.StatusOK)
			return
		}
	}
	answer(w, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name).Status(), http.StatusNotFound)
}

// patch merges annotations, and merges conditions by type, as a strategic merge does. When the API server updates the
// status of a pod, it updates the metadata, too: see podStatusStrategy in k8s.io/kubernetes/pkg/registry/core/pod.
func (s *server) patch(r *http.Request, pod *corev1.Pod) {
	var patch corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
		panic(fmt.Sprint(err, r.Header))
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	for key, value := range patch.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	for _, c := range patch.Status.Conditions {
		pod.Status.Conditions = append(slices.DeleteFunc(slices.Clone(pod.Status.Conditions),
			func(old corev1.PodCondition) bool { return old.Type == c.Type }), c)
		s.patched = append(s.patched, string(c.Status))
	}
	if s.onPatch != nil {
		s.onPatch()
	}
}

// cost returns a pod's deletion cost as the ReplicaSet controller reads it. Without the annotation, the cost is 0.
func (s *server) cost(name string) (cost int) {
	s.change(func() { cost, _ = strconv.Atoi(s.pods[name].Annotations[corev1.PodDeletionCost]) })
	return cost
}

func answer(w http.ResponseWriter, object any, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object)
}

// eventually polls until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: not %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
