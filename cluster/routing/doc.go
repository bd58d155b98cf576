// Package routing keeps a copy of a cluster's table in a process that is not a member, such as a gateway, a
// signaling server or a client of the service. Lookups are as fast as lookups in an agent. Lookups need no
// network and no lock.
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
// A Client reads one stream (/v1/table) from one of the agents. The stream starts with the whole table and
// the members, and continues with each change. The Client switches to another agent if the stream ends, or if
// the agent is silent for Config.IdleTimeout. The Client also switches if the agent reports that its own
// table may be outdated because it is isolated or joins again. The Client tries the agents in a random order,
// so that many routing clients are distributed over the agents. Until another agent answers, the Client keeps
// its table and its stream, so no lookup fails.
//
// The first table that is not stale determines which cluster the Client follows. The Client then refuses
// agents of clusters with another name. The Client can reach such an agent if a new pod reuses the address of
// an old pod. If you rename a cluster, restart its routing clients. Calls about rooms do not check the name
// of the cluster.
//
// Over HTTP/2, all streams of an agent share a connection. The Client closes a connection that has been
// silent for Config.IdleTimeout and then does not answer a ping within 10 s.
//
// # Scopes
//
// If Config.Scope is set, the table, the members and the changes belong to a scope of the agents. All agents
// need a scope with this name and the same members. During a rolling deployment that adds the scope, some
// agents do not have it yet, so the Client tries the next agent. Until the Client finds an agent with the
// scope, Status.Err says which agents refused and which scopes they have.
//
// # What a lookup promises
//
// The Client has the table of one agent, with a delay of at most a round trip. After a change, a lookup can
// be wrong for as long as the lookup of a member, plus a round trip. Only the owner knows reliably that it
// owns a key. The owner should therefore reject or forward requests for keys that it does not own
// (cluster.Agent.IsOwner).
//
// [Client.Age] returns how long ago the agent confirmed the table. In normal operation, the age is less than
// Config.IdleTimeout. A table does not expire. If your application must not use old tables, compare the age
// with your own limit. Also check Status.Stale, because an isolated agent still confirms its table. A stalled
// agent confirms its table for at most a TTL.
//
// After the Client has switched to another agent, its table can be slightly older than before, because agents
// need about a second to agree. In a split, the Client has the table of its agent's side.
//
// # JavaScript
//
// routing.mjs is a Client for Node.js and browsers, without dependencies. routing.mjs provides place, watch,
// members and status, but no Owners and no calls about rooms.
//
// # Cost
//
// A routing client uses one of its agent's clusterhttp.Options.MaxStreams streams. The agent encodes an
// update once for all routing clients.
package routing
