package clusterprom

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
)

func agentFamilies() []family {
	return slices.Concat(nodeFamilies(), eventFamilies(), memberFamilies(), tableFamilies(), gossipFamilies())
}

func nodeFamilies() []family {
	info := desc("node_info", "Always 1. The labels identify this node.", "node", "cluster", "zone", "strategy")
	return []family{
		{info, func(v *view, to chan<- prometheus.Metric) {
			to <- prometheus.MustNewConstMetric(info, prometheus.GaugeValue, 1, v.cfg.ID, v.cfg.Cluster, v.cfg.Zone, v.cfg.Strategy.Name())
		}},
		gauge("node_weight",
			"Share of this node relative to other nodes. A node with weight 0 owns nothing. The value grows during slow start, and follows the load with auto-weight.",
			func(v *view) float64 { return float64(v.Self.Weight) }),
		gauge("node_capacity", "Units of load that this node can carry, or 0 if no capacity is configured.",
			func(v *view) float64 { return float64(v.Self.Capacity) }),
		gauge("node_load", "Units of load in the latest heartbeat of this node. Also 0 if the node reports no load.",
			func(v *view) float64 { return float64(max(0, v.Self.Load)) }),
		gauges("resource_capacity", "Capacity of each resource of this node: see --resources.", "resource",
			func(v *view) map[string]uint64 {
				return v.byResource(func(r cluster.Resource) int64 { return r.Capacity })
			}),
		gauges("resource_use", "How much of each resource of this node is in use, as the application reports it. 0 before the first report.", "resource",
			func(v *view) map[string]uint64 { return v.byResource(func(r cluster.Resource) int64 { return r.Use }) }),
		phaseFamily(),
		gauge("min_members", "Minimum number of live members, including this node. With fewer members, this node is isolated and owns nothing.",
			func(v *view) float64 { return float64(v.cfg.MinMembers) }),
		counter("node_fences_total",
			"Number of times that this node fenced itself and released all partitions, because its process had been paused or its clock was ahead.",
			func(v *view) uint64 { return v.Stats.Fences }),
		holdFamily(),
		counter("health_failures_total", "Failed health checks of the application of this node, plus late health reports.",
			func(v *view) uint64 { return v.Stats.HealthFailures }),
		gauge("handoff_waiting", "Partitions that the table assigns to this node, but that their former owners have not released yet.",
			func(v *view) float64 { return float64(len(v.State.Waits())) }),
		counter("handoff_overruns_total",
			"Partitions that this node started to run after the handoff timeout, without a response from the former owner.",
			func(v *view) uint64 { return v.Stats.HandoffOverruns }),
		gauge("loop_age_seconds", "Time since the agent's loop last completed a round. When the age reaches the TTL, the lease has expired.",
			func(v *view) float64 { return v.loopAge.Seconds() }),
		counter("log_lines_dropped_total", "Log lines that were lost because the log handler failed or was too slow.",
			func(v *view) uint64 { return v.Stats.LogDropped }),
		counters("requests_total",
			"Requests that arrived at this node, by kind. The application reports requests for a key with Agent.Arrived, and requests for a room with Resolver.Host.",
			"kind",
			func(v *view) map[string]uint64 {
				return map[string]uint64{"key": v.Stats.Requests, "room": v.rooms.Requests}
			}),
		counters("requests_misrouted_total", "Requests in roost_requests_total whose key or room belongs to another node.", "kind",
			func(v *view) map[string]uint64 {
				return map[string]uint64{"key": v.Stats.Misrouted, "room": v.rooms.Misrouted}
			}),
	}
}

func (v *view) byResource(read func(cluster.Resource) int64) map[string]uint64 {
	all := make(map[string]uint64, len(v.resources))
	for _, r := range v.resources {
		all[r.Name] = uint64(read(r))
	}
	return all
}

func sourceFamilies() []family {
	return []family{gauge("config_last_reload_successful",
		"1 if the last reload of the settings and TLS files succeeded, or if there was none. 0 if it failed, so that the old values are still in use.",
		func(v *view) float64 {
			if v.readable {
				return 1
			}
			return 0
		})}
}

func phaseFamily() family {
	return gauges("node_phase", "1 for the current phase of this node, 0 for all other phases.", "phase", func(v *view) map[string]uint64 {
		phases := make(map[string]uint64)
		for p := cluster.PhaseJoining; p <= cluster.PhaseOver; p++ {
			phases[p.String()] = 0
		}
		phases[v.Phase.String()] = 1
		return phases
	})
}

func holdFamily() family {
	return gauges("node_hold", "1 while this node owns nothing for this cause, 0 otherwise. Several causes can apply at the same time.", "cause",
		func(v *view) map[string]uint64 {
			held := make(map[string]uint64)
			for _, c := range []cluster.Cause{
				cluster.CauseDuplicate, cluster.CauseClockAhead, cluster.CauseIsolated, cluster.CauseUnhealthy,
				cluster.CauseFlapping, cluster.CauseCordoned, cluster.CauseDraining,
			} {
				held[string(c)] = 0
			}
			for _, h := range v.Holds {
				held[string(h.Cause)] = 1
			}
			return held
		})
}

func eventFamilies() []family {
	return []family{
		gauges("event_readers", "Open readers of changes, by the method with which they read or by the name that the application chose.", "reader",
			func(v *view) map[string]uint64 {
				return v.byReader(func(r events.ReaderStats) uint64 { return uint64(r.Open) })
			}),
		gauges("event_lag_states", "Number of states by which the slowest reader is behind the latest state.", "reader",
			func(v *view) map[string]uint64 {
				return v.byReader(func(r events.ReaderStats) uint64 { return r.Behind })
			}),
	}
}

// byReader includes the readers that every agent can have, even if those readers are not open.
func (v *view) byReader(read func(events.ReaderStats) uint64) map[string]uint64 {
	all := map[string]uint64{"http": 0, "run_owned": 0, "subscribe": 0, "watch": 0}
	for _, r := range v.readers {
		all[r.Name] = read(r)
	}
	return all
}

// versions counts members by version, so that you can follow a deployment.
func versions() family {
	d := desc("member_versions",
		"Live members by the versions of their application and of roost. The version of the application is empty if a member reports none.", "app_version",
		"roost_version")
	return family{d, func(v *view, to chan<- prometheus.Metric) {
		members := make(map[[2]string]int)
		for _, m := range v.live() {
			members[[2]string{m.AppVersion, m.RoostVersion}]++
		}
		for version, n := range members {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), version[0], version[1])
		}
	}}
}

func memberFamilies() []family {
	return []family{
		gauges("members", "Live members that this node sees, including itself, by state.", "state", func(v *view) map[string]uint64 {
			members := map[string]uint64{lease.Settling.String(): 0, lease.Active.String(): 0, lease.Draining.String(): 0}
			for _, m := range v.live() {
				members[m.State.String()]++
			}
			return members
		}),
		versions(),
		gauges("lost_members",
			"Members that left or failed within the last 30 minutes and have not returned, as seen by this node.", "reason",
			func(v *view) map[string]uint64 {
				lost := map[string]uint64{string(lease.Departed): 0, string(lease.Crashed): 0, string(lease.Expired): 0}
				for _, l := range v.Lost() {
					lost[string(l.Reason)]++
				}
				return lost
			}),
		gauge("nodes_cordoned", "Nodes that are cordoned in the view of this node.", func(v *view) float64 { return float64(len(v.Cordons)) }),
		gauge("lease_ttl_seconds", "Age at which a lease expires.", func(v *view) float64 { return v.cfg.LeaseTTL.Seconds() }),
		gauge("lease_age_p99_seconds", "99th percentile of the ages of the live leases.", func(v *view) float64 {
			var ages []time.Duration
			for _, m := range v.live() {
				ages = append(ages, m.Age())
			}
			return percentile(ages, 99).Seconds()
		}),
		leaseAgeFamily(),
		counter("lease_expiries_total",
			"Leases that expired because their nodes failed without leaving, and no other node could confirm the failure earlier.",
			func(v *view) uint64 { return v.Stats.Expired }),
		counter("lease_crashes_total",
			"Leases that ended before their TTL because a node confirmed that the process or its host had failed.",
			func(v *view) uint64 { return v.Stats.Crashed }),
		counter("lease_refutations_total",
			"Number of times that this node started a new incarnation because of stale messages about itself.",
			func(v *view) uint64 { return v.Stats.Reincarnations }),
		gauge("clock_offset_max_seconds", "Largest difference between the wall clocks of this node and a member.", func(v *view) float64 {
			var most time.Duration
			for _, m := range v.live() {
				most = max(most, m.ClockOffset.Abs())
			}
			return most.Seconds()
		}),
		counter("view_changes_total", "Changes to the live members or to their records.", func(v *view) uint64 { return v.Stats.ViewChanges }),
		counter("records_refused_total", "Records rejected because the cluster has the maximum number of nodes.",
			func(v *view) uint64 { return v.Stats.RecordsRefused }),
		gauges("watch_streams",
			"Open TCP streams to other members (out) and from other members (in). If a process fails, its streams close, so the other members notice at once.",
			"direction", func(v *view) map[string]uint64 {
				return map[string]uint64{"out": uint64(max(0, v.Stats.Watched)), "in": uint64(max(0, v.Stats.Watchers))}
			}),
		counter("nodes_refused_total", "Nodes rejected because their cluster-wide settings differ.",
			func(v *view) uint64 { return v.Stats.NodesRefused }),
	}
}

// percentile returns the smallest value that is at least as large as the given percentage of all values, or 0
// if there are no values. percentile sorts all in place.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*percent+99)/100-1]
}

func tableFamilies() []family {
	return []family{
		gauge("partitions", "Number of partitions of the cluster.", func(v *view) float64 { return float64(v.cfg.Partitions) }),
		gauge("partitions_owned", "Partitions that this node owns.", func(v *view) float64 { return float64(v.owned) }),
		gauge("partitions_unowned", "Partitions without an owner in this node's table. If the node has no table, all partitions.", func(v *view) float64 {
			if len(v.Table.Nodes()) == 0 { // if the table has nodes, every partition has an owner
				return float64(v.cfg.Partitions)
			}
			return 0
		}),
		gauge("balance_cv_ratio", "Coefficient of variation of the nodes' shares, relative to their weights. 0 is perfect.",
			func(v *view) float64 { return v.balance.CV }),
		gauge("balance_max_mean_ratio", "Largest share of a node, divided by its fair share. 1 is perfect.",
			func(v *view) float64 { return v.balance.MaxMean }),
		gauge("table_digest", "Digest of the table. Nodes with the same digest agree on every owner. 0 if this node has no table.",
			func(v *view) float64 { return float64(v.Self.TableDigest) }),
		gauge("table_version", "Version of this node's view, which increases with each change of members or owners.",
			func(v *view) float64 { return float64(v.Version()) }),
		counter("table_changes_total", "Number of times that the table changed.", func(v *view) uint64 { return v.Stats.TableChanges }),
		gauge("table_diverged_members", "Live members whose table differs from the table of this node.",
			func(v *view) float64 { return float64(v.Diverged()) }),
		counter("table_divergences_total", "Number of times that the tables of members began to differ from the table of this node.",
			func(v *view) uint64 { return v.Stats.Divergences }),
		single(desc("table_diverged_seconds_total", "Total time during which the table of at least one member differed from the table of this node."),
			prometheus.CounterValue, func(v *view) float64 { return v.Stats.DivergedTime.Seconds() }),
		counter("assignment_fetches_total", "Full exchanges with another node, because its assignment differed from the assignment of this node.",
			func(v *view) uint64 { return v.Stats.AssignmentFetches }),
	}
}

func gossipFamilies() []family {
	return []family{
		counter("heartbeats_sent_total", "Heartbeats of its own that this node sent, counting each copy.",
			func(v *view) uint64 { return v.Stats.HeartbeatsSent }),
		counter("heartbeats_relayed_total", "Heartbeats of other nodes that this node forwarded, counting each copy.",
			func(v *view) uint64 { return v.Stats.HeartbeatsRelayed }),
		counters("heartbeats_received_total",
			"Heartbeats received, by result: applied (renewed a lease), aged (renewed a lease by its age alone), stale (already known, or too old), "+
				"skewed (dropped: the sender's clock is ahead).",
			"result", func(v *view) map[string]uint64 {
				return map[string]uint64{
					"applied": v.Stats.HeartbeatsApplied,
					"aged":    v.Stats.AgesApplied,
					"stale":   v.Stats.HeartbeatsStale,
					"skewed":  v.Stats.SkewRejected,
				}
			}),
		counters("messages_dropped_total",
			"Messages dropped, by reason: cannot be decoded (malformed), other wire version (version), other cluster-wide settings (settings), "+
				"not sent by an agent (guard), not encrypted with a key of this node (wrong_key), other cluster name (wrong_cluster), "+
				"sender outside --gossip-allow (not_allowed), inbox full (inbox_full), queued while this process was paused (stopped), "+
				"cluster time too far in the past (past), cluster time in the future that no member confirms (future), "+
				"other cluster with the same name (other_cluster), sent by this node itself (self). "+
				"The reasons past and future include recorded messages that somebody sends again.",
			"reason", func(v *view) map[string]uint64 {
				return map[string]uint64{
					"malformed": v.Stats.DecodeErrors, "version": v.Stats.VersionErrors, "settings": v.Stats.SettingsRefused,
					"guard": v.Stats.GuardDropped, "inbox_full": v.Stats.InboxDropped, "stopped": v.Stats.StaleDropped,
					"wrong_key": v.Stats.WrongKey, "wrong_cluster": v.Stats.WrongCluster, "not_allowed": v.Stats.NotAllowed,
					"past": v.Stats.FromPast, "future": v.Stats.FromFuture,
					"other_cluster": v.Stats.OtherCluster, "self": v.Stats.FromSelf,
				}
			}),
		counters("messages_sealed_total", "Messages that this node encrypted with the current gossip key, by the fingerprint of the key. "+
			"The count includes packets and messages of TCP streams. All nodes together can encrypt at most 2^32 messages with one key. 0 if there is no key.",
			"key", func(v *view) map[string]uint64 { return map[string]uint64{v.Stats.SealedWith: v.Stats.Sealed} }),
		counter("packets_sent_total", "Packets with heartbeats that this node sent.", func(v *view) uint64 { return v.Stats.PacketsSent }),
		counter("packets_received_total", "Packets with heartbeats that this node received.",
			func(v *view) uint64 { return v.Stats.PacketsReceived }),
		counter("packets_sent_bytes_total", "Total size of the packets in roost_packets_sent_total.", func(v *view) uint64 { return v.Stats.BytesSent }),
		counter("packets_received_bytes_total", "Total size of the packets in roost_packets_received_total.", func(v *view) uint64 { return v.Stats.BytesReceived }),
		counter("packet_send_errors_total", "Packets that this node failed to send.", func(v *view) uint64 { return v.Stats.SendErrors }),
	}
}
