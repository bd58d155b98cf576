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
	info := desc("node_info", "Always 1; the labels say which node this is.", "node", "cluster", "zone", "strategy")
	return []family{
		{info, func(v *view, to chan<- prometheus.Metric) {
			to <- prometheus.MustNewConstMetric(info, prometheus.GaugeValue, 1, v.cfg.ID, v.cfg.Cluster, v.cfg.Zone, v.cfg.Strategy.Name())
		}},
		gauge("node_weight",
			"Share of this node relative to others; 0 owns nothing. It grows during the slow start.",
			func(v *view) float64 { return float64(v.Self.Weight) }),
		gauge("node_capacity", "Units of load that this node can carry; 0 = not stated.",
			func(v *view) float64 { return float64(v.Self.Capacity) }),
		gauge("node_load", "Units of load in the latest heartbeat of this node; 0 also if it reports none.",
			func(v *view) float64 { return float64(max(0, v.Self.Load)) }),
		phaseFamily(),
		gauge("min_members", "Live members, this node among them, without which it is isolated and owns nothing.",
			func(v *view) float64 { return float64(v.cfg.MinMembers) }),
		counter("node_fences_total",
			"Times that this node fenced itself and released all partitions: its process had been paused, or its clock was ahead.",
			func(v *view) uint64 { return v.Stats.Fences }),
		gauge("node_healthy", "0 while the application of this node is unhealthy, so that the node owns nothing; else 1.", func(v *view) float64 {
			if _, unhealthy := v.Held(cluster.CauseUnhealthy); unhealthy {
				return 0
			}
			return 1
		}),
		gauge("flap_hold_seconds",
			"For how long this node owns nothing from now on, because it came and went too often; 0 = it is not flapping.",
			func(v *view) float64 {
				if v.Self.FlappingUntil.IsZero() {
					return 0
				}
				return max(0, time.Until(v.Self.FlappingUntil).Seconds())
			}),
		counter("health_failures_total", "Failed checks of the application of this node, and reports of it that were late.",
			func(v *view) uint64 { return v.Stats.HealthFailures }),
		gauge("handoff_waiting", "Partitions that the table gives to this node, which waits for their former owners.",
			func(v *view) float64 { return float64(len(v.State.Waits())) }),
		counter("handoff_overruns_total",
			"Partitions that this node ran without the answer of another node, because the bound of the handoff had passed.",
			func(v *view) uint64 { return v.Stats.HandoffOverruns }),
		gauge("loop_age_seconds", "Time since the agent's loop last went round; at the age of the TTL the lease has expired.",
			func(v *view) float64 { return v.loopAge.Seconds() }),
		counter("log_lines_dropped_total", "Log lines that were not written: the handler failed, or was too slow.",
			func(v *view) uint64 { return v.Stats.LogDropped }),
		counters("requests_total",
			"Requests that were routed to this node by the owner of a key (Agent.Arrived) or the node of a room (Resolver.Host).",
			"kind",
			func(v *view) map[string]uint64 {
				return map[string]uint64{"key": v.Stats.Requests, "room": v.rooms.Requests}
			}),
		counters("requests_misrouted_total", "Requests of roost_requests_total for a key or room of another node.", "kind",
			func(v *view) map[string]uint64 {
				return map[string]uint64{"key": v.Stats.Misrouted, "room": v.rooms.Misrouted}
			}),
	}
}

func sourceFamilies() []family {
	return []family{gauge("config_last_reload_successful",
		"1 unless the last attempt of this agent to read its settings, or its files of TLS, again has failed: then the former ones stay in force.",
		func(v *view) float64 {
			if v.readable {
				return 1
			}
			return 0
		})}
}

func phaseFamily() family {
	return gauges("node_phase", "1 for the current phase of this node, 0 for the others.", "phase", func(v *view) map[string]uint64 {
		phases := make(map[string]uint64)
		for p := cluster.PhaseJoining; p <= cluster.PhaseOver; p++ {
			phases[p.String()] = 0
		}
		phases[v.Phase.String()] = 1
		return phases
	})
}

func eventFamilies() []family {
	return []family{
		gauges("event_readers", "Loops that read changes, by method or by the name that the application chose.", "reader",
			func(v *view) map[string]uint64 {
				return v.byReader(func(r events.ReaderStats) uint64 { return uint64(r.Open) })
			}),
		gauges("event_lag_states", "States that the slowest of these readers is behind the latest one.", "reader",
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
		"Live members by the version of their application, empty if not stated, and of roost.", "app_version",
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
		gauges("members", "Live members that this node sees, including itself.", "state", func(v *view) map[string]uint64 {
			members := map[string]uint64{lease.Settling.String(): 0, lease.Active.String(): 0, lease.Draining.String(): 0}
			for _, m := range v.live() {
				members[m.State.String()]++
			}
			return members
		}),
		versions(),
		gauges("lost_members",
			"Members that have gone within 30 minutes and did not come back, as this node saw it.", "reason",
			func(v *view) map[string]uint64 {
				lost := map[string]uint64{string(lease.Departed): 0, string(lease.Crashed): 0, string(lease.Expired): 0}
				for _, l := range v.Lost() {
					lost[string(l.Reason)]++
				}
				return lost
			}),
		gauge("nodes_cordoned", "Nodes that are cordoned, as this node knows.", func(v *view) float64 { return float64(len(v.Cordons)) }),
		gauge("lease_ttl_seconds", "Age at which a lease expires.", func(v *view) float64 { return v.cfg.LeaseTTL.Seconds() }),
		gauge("lease_age_p99_seconds", "Age that 99 % of the live leases do not exceed.", func(v *view) float64 {
			var ages []time.Duration
			for _, m := range v.live() {
				ages = append(ages, m.Age())
			}
			return percentile(ages, 99).Seconds()
		}),
		leaseAgeFamily(),
		counter("lease_expiries_total",
			"Leases that expired: their nodes ended without leaving, and nothing confirmed it.",
			func(v *view) uint64 { return v.Stats.Expired }),
		counter("lease_crashes_total",
			"Leases that ended early, by confirmation that the process or its host had ended.",
			func(v *view) uint64 { return v.Stats.Crashed }),
		counter("lease_refutations_total",
			"Times that this node started a new incarnation because of stale messages about itself.",
			func(v *view) uint64 { return v.Stats.Reincarnations }),
		gauge("clock_offset_max_seconds", "Greatest difference between this node's wall clock and that of a member.", func(v *view) float64 {
			var most time.Duration
			for _, m := range v.live() {
				most = max(most, m.ClockOffset.Abs())
			}
			return most.Seconds()
		}),
		counter("view_changes_total", "Changes of the live members or of their records.", func(v *view) uint64 { return v.Stats.ViewChanges }),
		counter("records_refused_total", "Records rejected because the cluster has the maximum number of nodes.",
			func(v *view) uint64 { return v.Stats.RecordsRefused }),
		gauges("watch_streams",
			"TCP streams that are open to other members (out), and from others (in), to learn at once of the end of a process.",
			"direction", func(v *view) map[string]uint64 {
				return map[string]uint64{"out": uint64(max(0, v.Stats.Watched)), "in": uint64(max(0, v.Stats.Watchers))}
			}),
		counter("nodes_refused_total", "Nodes rejected because of different cluster-wide settings.",
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
		gauge("partitions", "Partitions of the cluster.", func(v *view) float64 { return float64(v.cfg.Partitions) }),
		gauge("partitions_owned", "Partitions that this node owns.", func(v *view) float64 { return float64(v.owned) }),
		gauge("partitions_unowned", "Partitions without an owner in this node's table; without a table, all of them.", func(v *view) float64 {
			if len(v.Table.Nodes()) == 0 { // if the table has nodes, every partition has an owner
				return float64(v.cfg.Partitions)
			}
			return 0
		}),
		gauge("balance_cv_ratio", "Coefficient of variation of the nodes' shares, by weight; 0 is perfect.",
			func(v *view) float64 { return v.balance.CV }),
		gauge("balance_max_mean_ratio", "Greatest share of a node in fair shares; 1 is perfect.",
			func(v *view) float64 { return v.balance.MaxMean }),
		gauge("table_digest", "Identifies the table: nodes with the same number agree on every owner; 0 without a table.",
			func(v *view) float64 { return float64(v.Self.TableDigest) }),
		gauge("table_version", "Number of the latest change of members or owners on this node.",
			func(v *view) float64 { return float64(v.Version()) }),
		counter("table_changes_total", "Tables that differed from the previous one.", func(v *view) uint64 { return v.Stats.TableChanges }),
		gauge("table_diverged_members", "Live members with another table than this node.",
			func(v *view) float64 { return float64(v.Diverged()) }),
		counter("table_divergences_total", "Times that members started to have another table than this node.",
			func(v *view) uint64 { return v.Stats.Divergences }),
		single(desc("table_diverged_seconds_total", "Time during which members had another table than this node."),
			prometheus.CounterValue, func(v *view) float64 { return v.Stats.DivergedTime.Seconds() }),
		counter("assignment_fetches_total", "Exchanges because another node's assignment differed.",
			func(v *view) uint64 { return v.Stats.AssignmentFetches }),
	}
}

func gossipFamilies() []family {
	return []family{
		counter("heartbeats_sent_total", "Copies of its own heartbeats that this node sent.",
			func(v *view) uint64 { return v.Stats.HeartbeatsSent }),
		counter("heartbeats_relayed_total", "Copies of other nodes' heartbeats that this node sent.",
			func(v *view) uint64 { return v.Stats.HeartbeatsRelayed }),
		counters("heartbeats_received_total",
			"Heartbeats received: applied (renewed a lease), aged (renewed a lease by its age alone), stale (known already, or too old), "+
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
			"Messages dropped: malformed, of another wire version or with other settings, sent by no agent (guard), "+
				"without a key of this node (wrong_key), of another cluster's name (wrong_cluster), from outside --gossip-allow (not_allowed), "+
				"over the capacity of the inbox (inbox_full), from before a pause of this process (stopped), "+
				"or of a cluster time that is long over (past) or that no member confirms (future): recorded ones, sent again, are among them; "+
				"of another cluster with the same name (other_cluster), or own ones that came back (self).",
			"reason", func(v *view) map[string]uint64 {
				return map[string]uint64{
					"malformed": v.Stats.DecodeErrors, "version": v.Stats.VersionErrors, "settings": v.Stats.SettingsRefused,
					"guard": v.Stats.GuardDropped, "inbox_full": v.Stats.InboxDropped, "stopped": v.Stats.StaleDropped,
					"wrong_key": v.Stats.WrongKey, "wrong_cluster": v.Stats.WrongCluster, "not_allowed": v.Stats.NotAllowed,
					"past": v.Stats.FromPast, "future": v.Stats.FromFuture,
					"other_cluster": v.Stats.OtherCluster, "self": v.Stats.FromSelf,
				}
			}),
		counters("messages_sealed_total", "Messages that this node sealed with the gossip key in use, by the fingerprint of the key: "+
			"packets and messages of streams. All nodes together may seal 2^32 with one key; 0 without a key.",
			"key", func(v *view) map[string]uint64 { return map[string]uint64{v.Stats.SealedWith: v.Stats.Sealed} }),
		counter("packets_sent_total", "Packets of heartbeats that this node sent.", func(v *view) uint64 { return v.Stats.PacketsSent }),
		counter("packets_received_total", "Packets of heartbeats that this node received.",
			func(v *view) uint64 { return v.Stats.PacketsReceived }),
		counter("packets_sent_bytes_total", "Bytes of roost_packets_sent_total.", func(v *view) uint64 { return v.Stats.BytesSent }),
		counter("packets_received_bytes_total", "Bytes of roost_packets_received_total.", func(v *view) uint64 { return v.Stats.BytesReceived }),
		counter("packet_send_errors_total", "Packets that this node failed to send.", func(v *view) uint64 { return v.Stats.SendErrors }),
	}
}
