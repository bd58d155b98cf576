package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// ReadyCondition is the condition of the pod that [ReportReady] sets. Its prefix is a domain of the project,
// because Kubernetes requires one, so that two programs do not use the same name.
const ReadyCondition = "roost-cluster.github.io/ready"

var errNoGate = errors.New("kubernetes: the pod does not wait for its condition: " +
	"add readinessGates: [{conditionType: " + ReadyCondition + "}] to its spec")

// ReportReady maintains the condition [ReadyCondition] of the own pod. The condition becomes true when the
// node is active and all members have its table, and false when the node is no longer active. A rollout of
// pods with this condition in their readinessGates waits for it. A probe of /readyz succeeds earlier, while
// other members may still route to old owners. Use both, because after a restart of the container, its pod
// keeps the old condition until this function runs.
//
// ReportReady returns when the agent or ctx has ended. It fails if a permission or the readiness gate is
// missing at the start. While the API server does not answer, or later refuses what it allowed at the start,
// it tries again, and the log says why.
func ReportReady(ctx context.Context, agent *cluster.Agent, o Options) error {
	a, err := open(o)
	if err != nil {
		return err
	}
	var ready, known bool // known: the pod has this state; before that, it may have the condition of an earlier container
	for {
		_, changed := agent.Latest()
		ended := over(agent)
		if !known || next(ready, agent) != ready {
			fatal := func(err error) bool { return final(err) && (!known || over(agent)) } // a ready server continues
			err := retry(ctx, agent.Config().Log, fatal, func() error {
				ready = next(ready, agent)
				return a.report(ctx, ready)
			})
			if err != nil {
				return err
			}
			known = true
		}
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-agent.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func over(agent *cluster.Agent) bool {
	select {
	case <-agent.Done():
		return true
	default:
		return false
	}
}

// next returns whether a node is ready, given whether it was ready before. A ready node stays ready although
// tables differ for a moment at each change of the cluster.
func next(before bool, agent *cluster.Agent) bool {
	s := agent.Snapshot()
	active := s.Phase == cluster.PhaseActive && s.Self.State == lease.Active && s.State != nil && !over(agent)
	return active && (before || s.Converged())
}

// report sets the condition.
func (a *api) report(ctx context.Context, ready bool) error {
	c := corev1.PodCondition{Type: ReadyCondition, Status: corev1.ConditionFalse, Reason: "NotReady", LastTransitionTime: metav1.Now()}
	if ready {
		c.Status, c.Reason = corev1.ConditionTrue, "Ready"
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{c}}})
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	pod, err := a.patchStatus(ctx, patch)
	if err == nil && !slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: ReadyCondition}) {
		return errNoGate
	}
	return err
}
