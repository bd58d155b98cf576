package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// A node reports its cost at most every leastCostEvery. In a cluster of more than 120 nodes, a node reports
// less often, so that all nodes together report at most once per costEvery.
const (
	leastCostEvery = 30 * time.Second
	costEvery      = time.Second / 4
)

// ReportDeletionCost maintains the annotation controller.kubernetes.io/pod-deletion-cost of this node's pod. The cost
// is the load that the node reports ([cluster.Agent.SetLoad], or affinity.Config.ReportLoad), so if the replicas of a
// Deployment are reduced, Kubernetes deletes the pods with the least load. Kubernetes deletes pods that are not ready
// before all others. It considers the cost only for a ReplicaSet. A StatefulSet always deletes the pod with the highest
// number.
//
// ReportDeletionCost checks the load every 30 s, less often with more than 120 members, and patches the pod if the load
// has changed by at least a tenth. A node that does not report a load patches nothing.
//
// ReportDeletionCost returns when the agent has stopped or ctx has ended. ReportDeletionCost fails if the permission is
// missing at the first report. If the API server does not answer, or later refuses what it permitted,
// ReportDeletionCost tries again and logs the reason.
func ReportDeletionCost(ctx context.Context, agent *cluster.Agent, o Options) error {
	return reportCost(ctx, agent, o, leastCostEvery)
}

func reportCost(ctx context.Context, agent *cluster.Agent, o Options, every time.Duration) error {
	a, err := open(o)
	if err != nil {
		return err
	}
	var reported int32
	known := false // the pod has this cost; before that, it may have the cost of an earlier container
	for {
		if cost, ok := costOf(agent); ok && (!known || differs(cost, reported)) {
			if reported, err = a.reportLoad(ctx, agent, known); err != nil {
				return err
			}
			known = true
		}
		select {
		case <-time.After(pause(every, len(agent.Members()))):
		case <-agent.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportLoad reports the load as the cost of the pod, and returns that cost. reportLoad tries again until the
// API server accepts the report or the agent has stopped. If no report was accepted before, an error that a
// person must fix is fatal.
func (a *api) reportLoad(ctx context.Context, agent *cluster.Agent, accepted bool) (cost int32, err error) {
	fatal := func(err error) bool { return final(err) && !accepted || over(agent) }
	err = retry(ctx, agent.Config().Log, fatal, func() error {
		cost, _ = costOf(agent) // an earlier attempt may have taken minutes
		return a.annotate(ctx, cost)
	})
	if over(agent) {
		err = nil // the pod ends, so its cost no longer matters
	}
	return cost, err
}

// pause returns the time between two reports of a node.
func pause(least time.Duration, members int) time.Duration {
	return max(least, time.Duration(members)*costEvery)
}

// costOf returns the load of the node as a deletion cost. ok is false if the node reports no load.
func costOf(agent *cluster.Agent) (cost int32, ok bool) {
	load := agent.Snapshot().Self.Load
	return int32(min(max(load, 0), math.MaxInt32)), load != lease.NoLoad
}

// differs reports whether a cost differs by at least a tenth from the cost that was reported. Small costs,
// which decide between the emptiest pods, are therefore reported more precisely than large costs.
func differs(cost, reported int32) bool {
	change := int64(cost) - int64(reported)
	return max(change, -change) >= max(1, int64(reported)/10)
}

// annotate sets the deletion cost of the pod with a patch of the pod's status, which can include annotations. For that,
// the node needs only permission to patch the status. Permission to patch pods would include their images.
func (a *api) annotate(ctx context.Context, cost int32) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		corev1.PodDeletionCost: strconv.Itoa(int(cost)),
	}}})
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	_, err = a.patchStatus(ctx, patch)
	return err
}
