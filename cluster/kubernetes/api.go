package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// requestTime is the time limit of a request.
const requestTime = 5 * time.Second

// api sends the four kinds of requests of this package. The package uses client-go's REST client, because the
// generated clients link the types of all Kubernetes resources. A program with the generated clients is 29 MB
// in size, and a program with the REST client is 15 MB.
type api struct {
	core, discovery rest.Interface
	namespace, pod  string
}

func open(o Options) (*api, error) {
	a := &api{namespace: o.Namespace, pod: o.Pod}
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	if a.namespace == "" {
		b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			return nil, fmt.Errorf("kubernetes: the namespace is unknown: set Options.Namespace: %w", err)
		}
		a.namespace = strings.TrimSpace(string(b))
	}
	if a.pod == "" {
		if a.pod, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("kubernetes: the pod's name is unknown: set Options.Pod: %w", err)
		}
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	of := func(path string, group schema.GroupVersion) rest.Interface {
		cfg := rest.CopyConfig(cfg)
		cfg.APIPath, cfg.GroupVersion, cfg.NegotiatedSerializer = path, &group, codecs.WithoutConversion()
		var c *rest.RESTClient
		if c, err = rest.RESTClientForConfigAndClient(cfg, client); err != nil {
			err = fmt.Errorf("kubernetes: %w", err)
		}
		return c
	}
	if a.core = of("/api", corev1.SchemeGroupVersion); err == nil {
		a.discovery = of("/apis", discoveryv1.SchemeGroupVersion)
	}
	return a, err
}

func (o Options) config() (*rest.Config, error) {
	if o.API != nil {
		return o.API, nil
	}
	cfg, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("kubernetes: this program does not run in a pod: set Options.API: %w", err)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("kubernetes: the pod has no service account token: set automountServiceAccountToken: true in its spec: %w",
			err)
	case err != nil:
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return cfg, nil
}

// right is a permission that the service account needs, in its namespace or, for nodes, in the cluster.
type right struct{ verb, group, resource string }

func (a *api) slices(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	// Read from the cache of the API server, so that 1,000 nodes cause no load on etcd. The cache can be
	// slightly out of date.
	r := a.discovery.Get().Namespace(a.namespace).Resource("endpointslices").
		Param("labelSelector", discoveryv1.LabelServiceName+"="+service).Param("resourceVersion", "0")
	err := a.do(ctx, right{"list", discoveryv1.GroupName, "endpointslices"}, "of the service "+service, r, &list)
	return list.Items, err
}

func (a *api) ownPod(ctx context.Context) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	err := a.do(ctx, right{"get", "", "pods"}, a.pod, a.core.Get().Namespace(a.namespace).Resource("pods").Name(a.pod), pod)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w; the pod's name comes from Options.Pod or the host name: pass metadata.name from the downward API",
			err)
	}
	return pod, err
}

func (a *api) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := new(corev1.Node)
	err := a.do(ctx, right{"get", "", "nodes"}, name, a.core.Get().Resource("nodes").Name(name), node)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; without this permission, set Config.Zone, or run Kubernetes 1.35, which copies the label %s to pods",
			err, corev1.LabelTopologyZone)
	}
	return node, err
}

// patchStatus merges a patch into the status of this node's pod.
func (a *api) patchStatus(ctx context.Context, patch []byte) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	r := a.core.Patch(types.StrategicMergePatchType).Namespace(a.namespace).Resource("pods").Name(a.pod).SubResource("status").Body(patch)
	return pod, a.do(ctx, right{"patch", "", "pods/status"}, a.pod, r, pod)
}

// do sends a request. If the request is not permitted, the error says how to permit it.
func (a *api) do(ctx context.Context, needs right, name string, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := r.Do(ctx).Into(into)
	if err == nil {
		return nil
	}
	what, role := fmt.Sprintf("%s %s %s", needs.verb, needs.resource, name), "ClusterRole"
	if needs.resource != "nodes" {
		what, role = what+" in the namespace "+a.namespace, "Role in the namespace "+a.namespace
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("kubernetes: %s: the service account needs a %s with the rule {apiGroups: [%q], resources: [%q], verbs: [%q]}, see deploy/kubernetes/embedded.yaml: %w",
			what, role, needs.group, needs.resource, needs.verb, err)
	}
	return fmt.Errorf("kubernetes: %s: %w", what, err)
}

// final reports whether a request that failed with err will keep failing until a person fixes the problem.
func final(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.Is(err, errNoGate)
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false // an API server that is starting briefly accepts no tokens
	default:
		return code >= 400 && code < 500
	}
}

// backoff returns the delays between attempts: up to 4 s, plus a random addition of up to half of the delay.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 4 * time.Second}
}

// longWait is how long the node waits before it logs a warning, because a person may need to fix something.
const longWait = 30 * time.Second

// retry calls f until f succeeds or returns a fatal error, or until ctx ends.
func retry(ctx context.Context, log *slog.Logger, fatal func(error) bool, f func() error) error {
	pauses := backoff()
	began, warned := time.Now(), false
	for last := ""; ; {
		err := f()
		if err == nil || fatal(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		switch {
		case !warned && time.Since(began) > longWait:
			last, warned = err.Error(), true
			log.Warn("still waiting for Kubernetes", "err", err)
		case last != err.Error():
			last = err.Error()
			log.Info("waiting for Kubernetes", "err", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pauses.Step()):
		}
	}
}
