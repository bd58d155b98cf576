// Package kubernetes tests the manifest. It is its own module, so that the dependencies of
// Kubernetes' types stay out of roost.
package kubernetes

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
		set     appsv1.StatefulSet
	)
	objects := []any{&service, &budget, &set} // in the order of the file
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
	for _, selector := range []map[string]string{service.Spec.Selector, budget.Spec.Selector.MatchLabels, set.Spec.Selector.MatchLabels} {
		if len(selector) == 0 || selector["app"] != labels["app"] {
			t.Errorf("%v does not select the pods, which have %v", selector, labels)
		}
	}
	if set.Spec.ServiceName != service.Name {
		t.Errorf("the set's service is %q, want %q", set.Spec.ServiceName, service.Name)
	}
}
