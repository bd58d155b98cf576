// Package kubernetes tests the manifest. It is its own module, so that the dependencies of
// Kubernetes' types stay out of roost.
package kubernetes

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// TestManifest: each field of the manifest exists in the API types of Kubernetes, with that
// type.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("roost.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var (
		service corev1.Service
		budget  policyv1.PodDisruptionBudget
		policy  networkingv1.NetworkPolicy
		set     appsv1.StatefulSet
	)
	objects := []any{&service, &budget, &policy, &set} // in the order of the file
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != len(objects) {
		t.Fatalf("%d documents, want %d", len(documents), len(objects))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), objects[i]); err != nil {
			t.Errorf("document %d: %v", i+1, err)
		}
	}
	labels := set.Spec.Template.Labels
	for _, selector := range []map[string]string{service.Spec.Selector, budget.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels, set.Spec.Selector.MatchLabels} {
		if len(selector) == 0 || selector["app"] != labels["app"] {
			t.Errorf("%v does not select the pods, which have %v", selector, labels)
		}
	}
	// The policy lets in what the containers listen on, and no more.
	listens, lets := make(map[string]bool), make(map[string]bool)
	for _, c := range append(set.Spec.Template.Spec.Containers, set.Spec.Template.Spec.InitContainers...) {
		for _, p := range c.Ports {
			listens[fmt.Sprint(p.ContainerPort, "/", p.Protocol)] = true
		}
	}
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			lets[fmt.Sprint(p.Port.IntValue(), "/", *p.Protocol)] = true
		}
	}
	if !maps.Equal(listens, lets) {
		t.Errorf("the pods listen on %v, the policy lets in %v", listens, lets)
	}
	if set.Spec.ServiceName != service.Name {
		t.Errorf("the set's service is %q, want %q", set.Spec.ServiceName, service.Name)
	}
}
