// Package helm tests the manifests and the chart. Helm renders the chart in the same way as in a cluster.
package helm

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// deploy is a link, because go test reuses the result of a test until a file below the module that the test has opened
// changes.
const (
	deploy   = "../testdata/deploy/"
	chartDir = deploy + "helm/roost"
)

// variants are examples of values that a user would set.
var variants = map[string]string{
	"default": "",
	"a media server": `
containers:
  - name: sfu
    image: example.org/sfu
    ports: [{name: media, containerPort: 3478, protocol: UDP}, {name: signalling, containerPort: 8080}]
    volumeMounts: [{name: recordings, mountPath: /recordings}]
volumes: [{name: recordings, emptyDir: {}}]
apiPort: 3478
redis: true
networkPolicy: {http: []}
`,
	"settings": `
replicas: 5
secret: other
settings: {capacity: 1048576, label: [disk=ssd, rack=3], no-flap-damping: true, ttl: 10s}
image: {repository: registry.example.org/roost, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
podLabels: {team: media}
podAnnotations: {}
priorityClassName: high
nodeSelector: {pool: media}
tolerations: [{key: media, operator: Exists}]
affinity: {podAntiAffinity: {}}
imagePullSecrets: [{name: pull}]
topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
podDisruptionBudget: {maxUnavailable: 10%}
`,
	"no policy": `networkPolicy: {enabled: false}`,
}

// objects are what the chart renders.
type objects struct {
	services map[string]corev1.Service
	set      appsv1.StatefulSet
	budget   policyv1.PodDisruptionBudget
	policy   *networkingv1.NetworkPolicy
	notes    string
}

func parse(t *testing.T, values string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render returns an error for values that the chart refuses.
func render(t *testing.T, values string) (o objects, err error) {
	t.Helper()
	return renderAs(t, common.ReleaseOptions{Name: "calls", Namespace: "media", IsInstall: true}, values)
}

func renderAs(t *testing.T, release common.ReleaseOptions, values string) (o objects, err error) {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, parse(t, values), release, nil)
	if err != nil {
		return o, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return o, err
	}
	o.services = make(map[string]corev1.Service)
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			o.notes = text
			continue
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			if strings.TrimSpace(document) != "" {
				o.add(t, document)
			}
		}
	}
	return o, nil
}

// add fails the test if the document has fields that the API of Kubernetes does not have.
func (o *objects) add(t *testing.T, document string) {
	t.Helper()
	var head struct{ Kind string }
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	var service corev1.Service
	var into any
	switch head.Kind {
	case "Service":
		into = &service
	case "StatefulSet":
		into = &o.set
	case "PodDisruptionBudget":
		into = &o.budget
	case "NetworkPolicy":
		o.policy = new(networkingv1.NetworkPolicy)
		into = o.policy
	default:
		if strings.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")) != "" {
			t.Errorf("the kind %q:\n%s", head.Kind, document)
		}
		return
	}
	if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
		t.Errorf("%v\n%s", err, document)
	}
	if head.Kind == "Service" {
		o.services[service.Name] = service
	}
}

// agent returns the container that runs roost.
func (o *objects) agent(t *testing.T) corev1.Container {
	t.Helper()
	pod := o.set.Spec.Template.Spec
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
		if c.Name == "roost" {
			return c
		}
	}
	t.Fatal("no container roost")
	return corev1.Container{}
}

// settings returns the settings of the agent in a container, from flags and from the environment.
func settings(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/settings.md") // a test of cmd/roost writes it
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	if len(c.Args) == 0 || c.Args[0] != "agent" {
		t.Fatalf("args %q", c.Args)
	}
	for _, arg := range c.Args[1:] {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok {
			value = "true"
		}
		found[name] = value
	}
	for _, e := range c.Env {
		if name, ok := strings.CutPrefix(e.Name, "ROOST_"); ok {
			found[strings.ReplaceAll(strings.ToLower(name), "_", "-")] = e.Value
		}
	}
	for name := range found {
		if !regexp.MustCompile("(?m)^\\| `--" + name + "[ `]").Match(page) {
			t.Errorf("roost agent has no setting %s", name)
		}
	}
	return found
}

// TestChart: each variant only has fields that Kubernetes knows and settings that roost knows, and its objects fit
// together.
func TestChart(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			o, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			labels, pod := o.set.Spec.Template.Labels, o.set.Spec.Template.Spec
			selectors := []map[string]string{o.budget.Spec.Selector.MatchLabels, o.set.Spec.Selector.MatchLabels}
			for _, s := range o.services {
				selectors = append(selectors, s.Spec.Selector)
			}
			for _, c := range pod.TopologySpreadConstraints {
				if c.LabelSelector != nil {
					selectors = append(selectors, c.LabelSelector.MatchLabels)
				}
			}
			if o.policy != nil {
				selectors = append(selectors, o.policy.Spec.PodSelector.MatchLabels, o.policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels)
				checkPolicy(t, *o.policy, pod)
			} else if name != "no policy" {
				t.Error("no network policy")
			}
			for _, s := range selectors {
				if len(s) != 2 || s["app.kubernetes.io/name"] != labels["app.kubernetes.io/name"] || s["app.kubernetes.io/instance"] != "calls" {
					t.Errorf("%v does not select the pods, which have %v", s, labels)
				}
			}
			seeds, ok := o.services[o.set.Spec.ServiceName]
			said := settings(t, o.agent(t))
			if !ok || seeds.Spec.ClusterIP != "None" || said["join"] != seeds.Name+":7946" {
				t.Errorf("the service of the pods is %+v, and the agents join %s", seeds, said["join"])
			}
			if *pod.AutomountServiceAccountToken || len(pod.TopologySpreadConstraints) == 0 || said["require-key"] != "true" {
				t.Errorf("token of the API %v, %d topologies, settings %v", *pod.AutomountServiceAccountToken, len(pod.TopologySpreadConstraints), said)
			}
			o.checkSecrets(t, said)
		})
	}
}

// checkPolicy: the policy only allows the ports on which the containers listen. The pods can reach each other on all
// ports of the agent, because roost doctor --all calls the HTTP API of each agent.
func checkPolicy(t *testing.T, policy networkingv1.NetworkPolicy, pod corev1.PodSpec) {
	t.Helper()
	listens, lets, among := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
		for _, p := range c.Ports {
			listens[fmt.Sprint(p.ContainerPort, "/", cmp.Or(p.Protocol, corev1.ProtocolTCP))] = true
		}
	}
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			port := fmt.Sprint(p.Port.IntValue(), "/", *p.Protocol)
			lets[port] = true
			if isAgents(port) == (len(rule.From) == 0) {
				t.Errorf("port %s is open to %v", port, rule.From)
			}
			for _, peer := range rule.From {
				if peer.NamespaceSelector == nil && reflect.DeepEqual(peer.PodSelector, &policy.Spec.PodSelector) {
					among[port] = true
				}
			}
		}
	}
	if !maps.Equal(listens, lets) {
		t.Errorf("the pods listen on %v, the policy lets in %v", listens, lets)
	}
	for port := range listens {
		if isAgents(port) && !among[port] {
			t.Errorf("the pods do not reach each other at %s", port)
		}
	}
}

func isAgents(port string) bool {
	return strings.HasPrefix(port, "7946/") || strings.HasPrefix(port, "8401/")
}

// checkSecrets: the volume contains each file that the agent reads, and NOTES.txt says how to create it.
func (o *objects) checkSecrets(t *testing.T, said map[string]string) {
	t.Helper()
	var reads, has []string
	for _, value := range said {
		if file, ok := strings.CutPrefix(value, "/etc/roost/"); ok {
			reads = append(reads, file)
		}
	}
	for _, v := range o.set.Spec.Template.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		for _, item := range v.Secret.Items {
			has = append(has, item.Path)
			if !strings.Contains(o.notes, "secret generic "+v.Secret.SecretName) || !strings.Contains(o.notes, "--from-literal="+item.Key+"=") {
				t.Errorf("NOTES.txt does not make %s of the secret %s:\n%s", item.Key, v.Secret.SecretName, o.notes)
			}
		}
	}
	slices.Sort(reads)
	slices.Sort(has)
	if !slices.Equal(reads, has) {
		t.Errorf("the agent reads %q, the volume has %q", reads, has)
	}
}

// TestValues: values end up where they belong, and numbers are written as such.
func TestValues(t *testing.T) {
	o, err := render(t, variants["settings"])
	if err != nil {
		t.Fatal(err)
	}
	said, pod := settings(t, o.agent(t)), o.set.Spec.Template.Spec
	for name, want := range map[string]string{"capacity": "1048576", "label": "disk=ssd,rack=3", "no-flap-damping": "true", "ttl": "10s"} {
		if said[name] != want {
			t.Errorf("%s is %q, want %q", name, said[name], want)
		}
	}
	if want := "registry.example.org/roost@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"; o.agent(t).Image != want {
		t.Errorf("the image is %s, want %s", o.agent(t).Image, want)
	}
	if *o.set.Spec.Replicas != 5 || pod.PriorityClassName != "high" || pod.NodeSelector["pool"] != "media" || len(pod.Tolerations) != 1 ||
		pod.Affinity == nil || len(pod.ImagePullSecrets) != 1 || len(pod.TopologySpreadConstraints) != 1 ||
		o.budget.Spec.MaxUnavailable.String() != "10%" ||
		o.set.Spec.Template.Labels["team"] != "media" {
		t.Errorf("%+v\n%+v", o.set.Spec, o.budget.Spec)
	}
	for _, refused := range []string{
		"replica: 3", "settings: {--ttl: 10s}", "image: {digest: latest}", `secret: ""`,
		"containers: [{name: sfu}]", "networkPolicy: {enable: false}", "podAnnotations: {port: 8401}",
		"nodeSelector: {gpu: true}",
	} {
		if _, err := render(t, refused); err == nil {
			t.Errorf("%s is accepted", refused)
		}
	}
}

// TestReleases: each release is a separate cluster, with a name that gossip and Redis accept.
func TestReleases(t *testing.T) {
	longest := strings.Repeat("n", 63)
	seen := make(map[string]bool)
	for _, release := range []common.ReleaseOptions{
		{Name: "calls", Namespace: "media"},
		{Name: "chat", Namespace: "media"},
		{Name: "calls", Namespace: "test"},
		{Name: strings.Repeat("r", 53), Namespace: longest},
		{Name: strings.Repeat("s", 53), Namespace: longest},
		{Name: "calls.v2", Namespace: "media"},
	} {
		o, err := renderAs(t, release, `secret: "123"`)
		if err != nil {
			t.Fatal(err)
		}
		name := settings(t, o.agent(t))["cluster"]
		if seen[name] || len(name) > 50 || !regexp.MustCompile("^[a-z0-9.-]+$").MatchString(name) {
			t.Errorf("release %s in %s is the cluster %q, with %v before", release.Name, release.Namespace, name, seen)
		}
		if seen[name] = true; strings.Contains(o.set.Name, ".") {
			t.Errorf("%s is no name of a service", o.set.Name)
		}
	}
	for values, want := range map[string]string{"": "2", "replicas: 2": "", "settings: {min-members: 1}": "1"} {
		o, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		if got := settings(t, o.agent(t))["min-members"]; got != want {
			t.Errorf("with %q, a node needs %q members, want %q", values, got, want)
		}
	}
}

// TestSameAsManifest: the chart runs the agent in the same way as the manifest.
func TestSameAsManifest(t *testing.T) {
	manifest := manifest(t)
	o, err := render(t, variants["a media server"])
	if err != nil {
		t.Fatal(err)
	}
	chart, plain := o.agent(t), manifest.agent(t)
	said, want := settings(t, chart), settings(t, plain)
	want["id"], want["join"], want["cluster"] = "$(POD_NAME)", "calls:7946", "media.calls" // from the names of the objects
	want["redis-file"], want["require-key"] = "/etc/roost/redis.url", "true"
	if !maps.Equal(said, want) {
		t.Errorf("settings %v\nwant %v", said, want)
	}
	wantStop := []string{"/roost", "drain", "--rooms", "--deadline", "20s", "--token-file", "/etc/roost/http.token"} // the manifest has no Redis
	if stop := chart.Lifecycle.PreStop.Exec.Command; !slices.Equal(stop, wantStop) {
		t.Errorf("preStop runs %q, want %q", stop, wantStop)
	}
	for _, c := range []*corev1.Container{&chart, &plain} {
		c.Lifecycle.PreStop.Exec.Command = slices.DeleteFunc(c.Lifecycle.PreStop.Exec.Command, func(arg string) bool {
			return arg == "--rooms" || arg == "--deadline" || arg == "--timeout"
		})
		c.Args, c.Env, c.Image, c.ImagePullPolicy = nil, nil, "", ""
	}
	if !reflect.DeepEqual(chart, plain) {
		t.Errorf("the container is %+v\nin the manifest %+v", chart, plain)
	}
	a, b := o.set.Spec, manifest.set.Spec
	if a.PodManagementPolicy != b.PodManagementPolicy || *a.Replicas != *b.Replicas ||
		!reflect.DeepEqual(a.Template.Spec.SecurityContext, b.Template.Spec.SecurityContext) ||
		*a.Template.Spec.TerminationGracePeriodSeconds != *b.Template.Spec.TerminationGracePeriodSeconds ||
		!maps.Equal(a.Template.Annotations, b.Template.Annotations) {
		t.Errorf("the set is %+v\nin the manifest %+v", a, b)
	}
}

// TestLint: Helm finds nothing to complain about in the chart.
func TestLint(t *testing.T) {
	for name, values := range variants {
		for _, m := range lint.RunAll(chartDir, parse(t, values), "media").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}
