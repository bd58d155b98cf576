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

// ReadyCondition is the condition of the pod that [ReportReady] sets. Its prefix is a domain of the project:
// Kubernetes asks for one, so that two programs do not use the same name.
const ReadyCondition = "roost-cluster.github.io/ready"

var errNoGate = errors.New("kubernetes: the pod does not wait for its condition: " +
	"add readinessGates: [{conditionType: " + ReadyCondition + "}] to its spec")

// ReportReady keeps the condition [ReadyCondition] of the own pod: true from when the node is active and all
// members run its table, until it is not active any more. A rollout of pods with that condition among their
// readinessGates waits for it. A probe of /readyz succeeds earlier, while other members may still route to
// former owners. Use both: when a container restarts, its pod has the condition of before until this function
// runs.
//
// ReportReady returns when the agent or ctx has ended, and an error if a right or the readiness gate is
// missing at the start. While the API server does not answer, or refuses later what it allowed at the start,
// it tries again, and the log says why.
func ReportReady(ctx context.Context, agent *cluster.Agent, o Options) error {
	a, err := open(o)
	if err != nil {
		return err
	}
	var ready, known bool // known: the pod has it; before, it may have the condition of an earlier container
	for {
		_, changed := agent.Latest()
		ended := over(agent)
		if !known || next(ready, agent) != ready {
			fatal := func(err error) bool { return final(err) && (!known || over(agent)) } // a server that is ready goes on
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

// next returns whether a node is ready that was so before. Tables differ for a moment at each change of
// the cluster: a node that all others have routed to once stays ready.
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
