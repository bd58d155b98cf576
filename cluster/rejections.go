package cluster

import "time"

// Rejection is what this node rejected from one source, before it decided anything. Reason is "wrong_key" (no key of this
// node opens it, or only one side uses a key), "wrong_cluster" (it names another cluster, or none) or "not_allowed" (the
// source is outside Config.GossipAllow).
type Rejection struct {
	Reason  string
	Over    string    // "tcp", or "udp": then anybody may have forged the source
	From    string    // ip:port over UDP; ip over TCP
	Cluster string    // the latest name with wrong_cluster, at most 255 bytes; the sender is not authenticated
	Count   uint64    // since the source is one of the latest
	Latest  time.Time // by this node's clock
}

// Rejections returns the latest sources of packets and connections that this node rejected, the latest one first: at most
// four for each reason over UDP, and as many over TCP. [Stats] counts all.
func (a *Agent) Rejections() []Rejection {
	rejected := a.gossip.Rejections()
	all := make([]Rejection, len(rejected))
	for i, r := range rejected {
		all[i] = Rejection{Reason: r.Why.String(), Over: r.Over.String(), From: r.From, Cluster: r.Cluster, Count: r.Count, Latest: r.Latest}
	}
	return all
}
