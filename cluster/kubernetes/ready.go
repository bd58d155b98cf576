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

// ReadyCondition is the condition of the pod that [ReportReady] sets. Kubernetes requires a domain as the
// prefix, so that two programs do not use the same name. The prefix here is a domain of the roost project.
const ReadyCondition = "roost-cluster.github.io/ready"

var errNoGate = errors.New("kubernetes: the pod does not wait for its condition: " +
	"add readinessGates: [{conditionType: " + ReadyCondition + "}] to its spec")

// ReportReady maintains the condition [ReadyCondition] of this node's pod. The condition becomes true when
// the node is active and all members have its table. The condition becomes false when the node is no longer
// active. If the pods have this condition in their readinessGates, a rollout waits for the condition. A probe
// of /readyz succeeds earlier, while other members may still route to old owners. Use the condition and the
// probe, because after a restart of the container, the pod keeps the old condition until ReportReady runs.
//
// ReportReady returns when the agent has stopped or ctx has ended. ReportReady fails if a permission or the
// readiness gate is missing at the start. If the API server does not answer, or later refuses what it
// permitted at the start, ReportReady tries again and logs the reason.
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
			fatal := func(err error) bool { return final(err) && (!known || over(agent)) } // once the server has accepted a report, only an error after the agent has stopped is fatal
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

// next reports whether a node is ready, given whether it was ready before. A ready node remains ready
// although tables briefly differ at each change of the cluster.
func next(before bool, agent *cluster.Agent) bool {
	s := agent.Snapshot()
	active := s.Phase == cluster.PhaseActive && s.Self.State == lease.Active && s.State != nil && !over(agent)
	return active && (before || s.Converged())
}

// report sets the condition [ReadyCondition] of the pod.
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
