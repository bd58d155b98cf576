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
// A Client holds one stream (/v1/table) from one of the agents. The stream begins with the whole table and
// the members, followed by each change. The Client changes to another agent if the stream ends, if the agent
// is silent for Config.IdleTimeout, or if the agent says that its own table may be out of date because it is
// isolated or joins again. It tries the agents in a random order, so that many routing clients spread over
// them. Until another agent answers, the Client keeps its table and its stream, so no lookup fails.
//
// The first table that is not stale decides which cluster the Client follows. It then refuses agents of
// clusters with another name, which can happen if the address of a pod is used again. If you rename a
// cluster, restart its routing clients. Calls about rooms do not check the name.
//
// Over HTTP/2, all streams of an agent share a connection. It is closed if it is silent for
// Config.IdleTimeout and then does not answer a ping within 10 s.
//
// # Scopes
//
// With Config.Scope, the table, the members and the changes are those of a scope of the agents. All agents
// need a scope of this name with the same members. During a rolling deploy that adds the scope, some agents
// do not have it yet, so the Client asks the next one. Until it finds an agent with the scope, Status.Err
// says which agents refused and which scopes they have.
//
// # What a lookup promises
//
// The Client has the table of one agent, with a delay of at most a round trip. A lookup can be wrong for as
// long as a member's lookup can, plus this delay. The owner itself knows best, so it should reject or forward
// requests for keys that are not its own (cluster.Agent.IsOwner).
//
// [Client.Age] returns how long ago the agent confirmed the table. At rest, that is less than
// Config.IdleTimeout. A table does not expire. If your application must not use old answers, compare the age
// with your own limit, and check Status.Stale, because an isolated agent confirms its table, too. A stalled
// agent confirms its table for at most a TTL.
//
// After the Client has changed to another agent, its table can be a little older than before, because agents
// need about a second to agree. In a split, the Client has the table of its agent's side.
//
// # JavaScript
//
// routing.mjs is a Client for Node.js and browsers, without dependencies. It has place, watch, members and
// status, but neither Owners nor calls about rooms.
//
// # Cost
//
// A routing client uses one of its agent's clusterhttp.Options.MaxStreams streams. The agent encodes an
// update once for all routing clients.
package routing
