// Package kubernetes tests the manifest. It is its own module, so that the dependencies of
// Kubernetes' types stay out of roost.
package kubernetes

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// parse reads the documents of a file into objects, in the order of the file. Each field exists in the API types of
// Kubernetes, with that type.
func parse(t *testing.T, file string, objects ...any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != len(objects) {
		t.Fatalf("%d documents, want %d", len(documents), len(objects))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), objects[i]); err != nil {
			t.Errorf("document %d: %v", i+1, err)
		}
	}
}

// checkPolicy: the policy lets in what the containers listen on, and no more.
func checkPolicy(t *testing.T, policy networkingv1.NetworkPolicy, pod corev1.PodSpec) {
	t.Helper()
	listens, lets := make(map[string]bool), make(map[string]bool)
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
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
}

// TestManifest: the objects of a media server with an agent belong together.
func TestManifest(t *testing.T) {
	var (
		service corev1.Service
		budget  policyv1.PodDisruptionBudget
		policy  networkingv1.NetworkPolicy
		set     appsv1.StatefulSet
	)
	parse(t, "roost.yaml", &service, &budget, &policy, &set)
	labels := set.Spec.Template.Labels
	for _, selector := range []map[string]string{service.Spec.Selector, budget.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels, set.Spec.Selector.MatchLabels} {
		if len(selector) == 0 || selector["app"] != labels["app"] {
			t.Errorf("%v does not select the pods, which have %v", selector, labels)
		}
	}
	checkPolicy(t, policy, set.Spec.Template.Spec)
	if set.Spec.ServiceName != service.Name {
		t.Errorf("the set's service is %q, want %q", set.Spec.ServiceName, service.Name)
	}
}

// TestEmbedded: the pods of a program that embeds roost run as the service account that has the rights, and wait for the condition that
// the program sets. A test of the module roost/kubernetes runs by these rights.
func TestEmbedded(t *testing.T) {
	var (
		account     corev1.ServiceAccount
		role        rbacv1.Role
		binding     rbacv1.RoleBinding
		zone        rbacv1.ClusterRole
		zoneBinding rbacv1.ClusterRoleBinding
		service     corev1.Service
		budget      policyv1.PodDisruptionBudget
		policy      networkingv1.NetworkPolicy
		deployment  appsv1.Deployment
	)
	parse(t, "embedded.yaml", &account, &role, &binding, &zone, &zoneBinding, &service, &budget, &policy, &deployment)
	pod := deployment.Spec.Template
	for _, selector := range []map[string]string{service.Spec.Selector, budget.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels, deployment.Spec.Selector.MatchLabels} {
		if len(selector) == 0 || selector["app"] != pod.Labels["app"] {
			t.Errorf("%v does not select the pods, which have %v", selector, pod.Labels)
		}
	}
	checkPolicy(t, policy, pod.Spec)
	if *account.AutomountServiceAccountToken || !*pod.Spec.AutomountServiceAccountToken || pod.Spec.ServiceAccountName != account.Name {
		t.Errorf("the pods run as %q", pod.Spec.ServiceAccountName)
	}
	for _, b := range []struct {
		ref      rbacv1.RoleRef
		subjects []rbacv1.Subject
		role     string
	}{{binding.RoleRef, binding.Subjects, role.Name}, {zoneBinding.RoleRef, zoneBinding.Subjects, zone.Name}} {
		if b.ref.Name != b.role || len(b.subjects) != 1 || b.subjects[0].Kind != "ServiceAccount" || b.subjects[0].Name != account.Name {
			t.Errorf("%v is bound to %v", b.ref, b.subjects)
		}
	}
	source, err := os.ReadFile("../../kubernetes/ready.go")
	if err != nil {
		t.Fatal(err)
	}
	gates := pod.Spec.ReadinessGates
	if len(gates) != 1 || !strings.Contains(string(source), fmt.Sprintf("const ReadyCondition = %q", gates[0].ConditionType)) {
		t.Errorf("the pods wait for %v", gates)
	}
}
