package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

// Port is the result of connecting to the gossip port of a lost member.
type Port int

// The ports.
const (
	PortUnknown     Port = iota // nobody has tried, or the attempt showed nothing
	PortAnswers                 // a process answers
	PortSilent                  // the host accepts the connection, but no process answers
	PortRefused                 // the host refuses the connection
	PortUnreachable             // no host answers
)

// lost returns the members that were lost but did not leave, grouped by the state of their gossip ports. Each group has
// its own advice. If the ports are unknown, the advice depends on why the members were lost.
func (e Examination) lost() (groups []group, most bool) {
	type end struct {
		port Port
		what string // "crashed 4s ago"
	}
	var ends []end
	ids := make(map[end][]string)
	var unknown []report.Lost
	lost := 0
	for _, l := range e.After.Members.Lost {
		if l.Reason == lease.Departed {
			continue
		}
		lost++
		end := end{e.Ports[l.ID], fmt.Sprintf("%s %v ago", l.Reason, ms(l.AgoMS).Round(time.Second))}
		if ids[end] == nil {
			ends = append(ends, end)
		}
		ids[end] = append(ids[end], string(l.ID))
		if end.port == PortUnknown {
			unknown = append(unknown, l)
		}
	}
	found := make(map[Port][]string)
	for _, end := range ends {
		found[end.port] = append(found[end.port], few(ids[end])+" "+end.what)
	}
	owned := "; other nodes own what these owned"
	if e.After.Stats.Isolated() {
		owned = "; this node is isolated, and owns nothing either"
	}
	asIs := group{found[PortUnknown], "lost: ", strings.TrimPrefix(owned, "; "), lostFix(unknown)}
	if most = e.outnumbered(lost); most {
		asIs.what = "most members are lost: "
		asIs.means = "the few that are left carry everything; if the lost ones are only cut off, they still run and may own the same partitions"
	}
	return []group{
		{
			found[PortSilent], "lost, and paused: ",
			"their hosts accept connections, and their processes do not answer: they are stopped, frozen or starved" + owned,
			"on their hosts, ps shows the state T for a process that a signal or a debugger stopped: kill -CONT PID lets it run on, and it joins again by itself." +
				" Otherwise see whether its container is frozen, or the machine swaps or is out of CPU. If it cannot run on, kill -9 PID, and start it again",
		},
		{
			found[PortRefused], "lost, and ended: ",
			"their hosts run, and no process listens on their gossip ports" + owned,
			"see why they ended: their logs, their supervisors' logs and exit codes, their memory limits; then start them again" + forgotten,
		},
		{
			found[PortUnreachable], "lost, and out of reach: ",
			"their hosts do not answer this machine, which reaches others: they are down or suspended, or a network is cut" + owned,
			"see whether the machines run, and whether firewalls or routes cut them off; if the processes still run, they join again by themselves" + forgotten,
		},
		{
			found[PortAnswers], "lost, and running: ",
			"a process answers at their gossip ports, from this machine: their network to the other nodes is cut, or they start again and do not get in",
			"see whether UDP and TCP get through between them and the other nodes, in both directions; their logs, and roost doctor at their own agents, have their side",
		},
		asIs,
	}, most
}

const forgotten = ". A node that is gone for good is forgotten after 30 minutes"

// lostFix returns advice on what to check, which depends on why the members were lost.
func lostFix(lost []report.Lost) string {
	of := func(reason lease.Reason) bool {
		return slices.ContainsFunc(lost, func(l report.Lost) bool { return l.Reason == reason })
	}
	const crashed = "see the logs of the application and of the supervisor"
	const expired = "see whether the host runs, whether the network reaches it, and whether the process is paused: roost doctor --all tells these apart"
	switch {
	case !of(lease.Expired):
		return crashed + forgotten
	case !of(lease.Crashed):
		return expired + forgotten
	}
	return "crashed: " + crashed + "; expired: " + expired + forgotten
}
