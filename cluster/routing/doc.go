// Package routing keeps a copy of a cluster's table in a process that is not a member: a gateway, a
// signalling server, a client of the service. Lookups are as fast as those of an agent, and need
// neither the network nor a lock.
//
//	c, err := routing.Start(ctx, routing.Config{Agents: []string{"10.0.0.1:8401", "10.0.0.2:8401"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	<-c.Ready()
//	owner, err := c.Place("room-17") // owner.APIAddr serves room-17
//
// # Where the table comes from
//
// A Client holds one stream (/v1/table) from one of the agents: the whole table and the members first, then
// each change. It takes another agent if the stream ends, if the agent says nothing for Config.IdleTimeout, or if
// the agent says that its own table may be out of date, because it is isolated or joins again. The agents
// take turns in a random order, so that many routing clients spread over them. Until another agent
// answers, the Client keeps its table and the stream that it has: no lookup fails.
//
// The first table that is not stale decides which cluster is followed: agents that name another one are
// refused, as when the address of a pod is used again. A cluster that gets another name needs a restart of
// its routing clients. The calls about rooms do not look at the name.
//
// Over HTTP/2 all streams of an agent have one connection, which is closed when it is silent for
// Config.IdleTimeout and answers no ping within 10 s more.
//
// # Scopes
//
// With Config.Scope the table, the members and the changes are those of a scope of the agents. All agents
// need a scope of that name with the same members. In a rolling deploy that adds the scope, some agents do
// not have it yet: the Client asks the next one. Until one has it, Status.Err says which agents refused and
// which scopes they have.
//
// # What a lookup promises
//
// The table is that of one agent, a moment later: a change takes a round trip at most. A lookup can be wrong
// for as long as that of a member can, and for this moment in addition. The owner
// itself knows best: it rejects or forwards what is not its own (cluster.Agent.IsOwner).
// [Client.Age] tells how long ago the agent confirmed the table: at rest less than Config.IdleTimeout. A
// table does not expire; an application that wants no old answers compares the age with its own limit, and looks at
// Status.Stale: an isolated agent confirms its table, too, which then has a small age and is marked by Stale.
// A stalled agent confirms its table for a TTL at most.
//
// After a change of the agent, the table can be a little older than the one before: agents
// agree within a second or so. In a split, the table is that of the agent's side.
//
// # JavaScript
//
// routing.mjs is a Client for Node.js and browsers, without dependencies: place, watch, members, status. It does not
// rank (Owners), and does not resolve rooms.
//
// # Cost
//
// A routing client costs its agent one of clusterhttp.Options.MaxStreams streams. An update is encoded
// once for all routing clients.
package routing
