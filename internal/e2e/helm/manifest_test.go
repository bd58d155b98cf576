package helm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// documents reads the documents of a file into objects, in the order of the file. It fails the test unless each field
// exists in the API types of Kubernetes and has the right type.
func documents(t *testing.T, file string, objects ...any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Split(string(text), "\n---\n")
	if len(found) != len(objects) {
		t.Fatalf("%d documents, want %d", len(found), len(objects))
	}
	for i, document := range found {
		if err := yaml.UnmarshalStrict([]byte(document), objects[i]); err != nil {
			t.Errorf("document %d: %v", i+1, err)
		}
	}
}

// manifest is the plain manifest of a media server with an agent.
func manifest(t *testing.T) *objects {
	t.Helper()
	o, service := &objects{policy: new(networkingv1.NetworkPolicy)}, corev1.Service{}
	documents(t, deploy+"kubernetes/roost.yaml", &service, &o.budget, o.policy, &o.set)
	o.services = map[string]corev1.Service{service.Name: service}
	return o
}

func checkSelectors(t *testing.T, labels map[string]string, selectors ...map[string]string) {
	t.Helper()
	for _, selector := range selectors {
		if len(selector) == 0 || selector["app"] != labels["app"] {
			t.Errorf("%v does not select the pods, which have %v", selector, labels)
		}
	}
}

// TestManifest: the objects of a media server with an agent fit together.
func TestManifest(t *testing.T) {
	o := manifest(t)
	service, ok := o.services[o.set.Spec.ServiceName]
	if !ok {
		t.Errorf("the set has no service %q", o.set.Spec.ServiceName)
	}
	pod := o.set.Spec.Template
	checkSelectors(t, pod.Labels, service.Spec.Selector, o.budget.Spec.Selector.MatchLabels,
		o.policy.Spec.PodSelector.MatchLabels, o.set.Spec.Selector.MatchLabels)
	checkPolicy(t, *o.policy, pod.Spec)
}

// TestEmbedded: the pods of a program that embeds roost run as the service account with the required rights, and wait
// for the condition that the program sets. A test in the module cluster/kubernetes runs with these rights.
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
	documents(t, deploy+"kubernetes/embedded.yaml", &account, &role, &binding, &zone, &zoneBinding, &service, &budget, &policy, &deployment)
	pod := deployment.Spec.Template
	checkSelectors(t, pod.Labels, service.Spec.Selector, budget.Spec.Selector.MatchLabels,
		policy.Spec.PodSelector.MatchLabels, deployment.Spec.Selector.MatchLabels)
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
	source, err := os.ReadFile("../../../cluster/kubernetes/ready.go")
	if err != nil {
		t.Fatal(err)
	}
	gates := pod.Spec.ReadinessGates
	if len(gates) != 1 || !strings.Contains(string(source), fmt.Sprintf("const ReadyCondition = %q", gates[0].ConditionType)) {
		t.Errorf("the pods wait for %v", gates)
	}
}
