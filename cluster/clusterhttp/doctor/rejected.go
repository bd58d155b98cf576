package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
)

// rejectedFor is how long the doctor warns about rejected gossip. A node with a wrong setting retries within
// seconds, so the warning remains as long as that node runs.
const rejectedFor = 10 * time.Minute

// rejections has the text for each reason to reject gossip.
var rejections = []struct{ reason, what, means, do string }{ //nolint:gochecknoglobals // a table
	{
		"wrong_key", "gossip that no key of this node decrypts",
		"a node there has a different key or none, so it and this node cannot be in one cluster; if the finding lists all other nodes, this node has the wrong key",
		"if a node of this cluster runs there, compare the output of roost keys here with roost keygen --show FILE there, where FILE is its --key-file. If they differ, give that node this cluster's key",
	},
	{
		"wrong_cluster", "gossip of another cluster",
		"a node there has a seed in this cluster, or the wrong cluster name",
		"correct its --join or its --cluster; if no agent runs there, close the gossip port to that host",
	},
	{
		"not_allowed", "gossip from outside --gossip-allow",
		"this node ignores it, so a node there cannot become a member",
		"if a node of this cluster runs there, add its network to --gossip-allow on all nodes; if not, close the gossip port to that host",
	},
}

// rejected warns about gossip that this node has recently rejected, and names the sources.
func (e Examination) rejected() (checks []Check) {
	s := e.After.Stats
	for _, k := range rejections {
		sources := slices.DeleteFunc(slices.Clone(s.Rejected), func(r report.Rejection) bool {
			return r.Reason != k.reason || ms(r.AgoMS) > rejectedFor
		})
		if len(sources) == 0 {
			continue
		}
		var from []string
		forgeable := false
		for _, r := range sources {
			over := r.Over
			if r.Reason == "wrong_cluster" {
				over = clusterName(r.Cluster) + ", " + over
			}
			from = append(from, fmt.Sprintf("%s (%s, %d in all, latest %s ago)", r.From, over, r.Count, ms(r.AgoMS).Round(time.Second)))
			forgeable = forgeable || r.Over == "udp"
		}
		do := k.do
		if forgeable {
			do += ". Anyone can forge the source address of udp; trust only tcp addresses"
		}
		checks = append(checks, Check{"gossip", Warn, k.what + ", from " + few(from), k.means, do})
	}
	if c := s.Counts; len(checks) == 0 && c.WrongKey+c.WrongCluster+c.NotAllowed > 0 {
		checks = []Check{{
			Name: "gossip", Finding: fmt.Sprintf("nothing rejected for %v; since start: wrong_key %d, wrong_cluster %d, not_allowed %d",
				rejectedFor, c.WrongKey, c.WrongCluster, c.NotAllowed),
		}}
	}
	return checks
}

// refused warns if this node has recently refused a node with other settings.
func (e Examination) refused() []Check {
	s, now := e.After.Stats.Counts, e.After.History.Now
	ago := now.Sub(s.LatestRefused)
	if s.LatestRefused.IsZero() || now.IsZero() || ago > rejectedFor {
		return nil
	}
	return []Check{{
		"settings", Warn, fmt.Sprintf("refused a node %v ago (%d since start): %s", max(0, ago).Round(time.Second), s.NodesRefused,
			incarnation.ReplaceAllString(strings.TrimPrefix(s.LatestRefusal, "cluster: "), "")),
		"that node is not a member, and cannot become one with this setting",
		restartWith(s.LatestRefusal),
	}}
}

// incarnation matches the end of a node's name in gossip.
var incarnation = regexp.MustCompile(`#\d+$`)

// difference matches the text of a [cluster.SettingsError]. Their value comes from a node that may be hostile, so no advice
// repeats it: the text up to the first " here and " is this node's own.
var difference = regexp.MustCompile(`^cluster: setting (\S+) must be the same on all nodes, but it is (.*?) here and (?s:.*) on ([\w.:\[\]-]{1,64})#\d+$`)

// restartWith returns advice about a node with other settings.
func restartWith(refusal string) string {
	const all = "; to change the value on all nodes, see Change a cluster-wide setting in docs/upgrades.md of roost's repository"
	if m := difference.FindStringSubmatch(refusal); m != nil {
		switch m[1] {
		case "partitions", "ttl", "heartbeat", "max-skew", "split":
			m[1] = "--" + m[1]
		case "strategy":
		default: // such as the versions of messages
			return fmt.Sprintf("run the same release of roost on %s as on the other nodes", m[3])
		}
		return fmt.Sprintf("start %s again with %s %s, as in this cluster%s", m[3], m[1], m[2], all)
	}
	return "start it again with the value of this cluster" + all
}

// clusterName returns the cluster name of a packet for display. The name is shortened and quoted, because the
// sender is not authenticated.
func clusterName(cluster string) string {
	if cluster == "" {
		return "no name"
	}
	return fmt.Sprintf("%.64q", strings.ToValidUTF8(cluster, "?"))
}
