// Package clusterhttp serves the HTTP API of a [cluster.Agent], and has a [Client] for the API. To serve the
// API:
//
//	srv := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{}))
//	srv.Addr = clusterhttp.DefaultBase
//	err := srv.ListenAndServe()
//
// To call an agent on the same machine:
//
//	var c clusterhttp.Client
//	placed, err := c.Place(ctx, "room-17") // placed.Owner.APIAddr serves room-17
//
// The API consists of JSON calls for applications in any language, event streams, and probes for an
// orchestrator.
//
// # Guarantees
//
//  1. A response is built from one snapshot of the agent, so its parts agree with each other.
//  2. Every error response has a [Problem] with a stable code.
//  3. JSON fields are added, but never removed or renamed.
//  4. Slow clients cost limited memory and, with [NewServer], a limited number of connections.
//
// # Limits
//
// Every response shows the view of one node, so responses of two nodes can differ. Two responses of one node
// can also come from different snapshots.
//
// A handler serves at most MaxStreams + 1,024 requests at the same time, regardless of the server that embeds
// it. Requests with a valid token are not counted. Probes (/healthz, /readyz, /metrics) have 2,304 additional
// places.
//
// A client has 30 s to read a response. At most 512 clients can read responses at the same time, and these
// responses can take at most 64 MB. Above either limit, the handler cuts off the responses that have taken
// longest. If your server does not come from [NewServer], set [ConnContext] and, with HTTP/2, a
// WriteByteTimeout.
//
// A key is 1 to 4,096 bytes of UTF-8. Unknown parameters are ignored. A known parameter must not appear
// twice. HEAD works wherever GET does.
//
// A body is a JSON object of at most 64 kB, with Content-Type application/json and no unknown fields. A call
// without parameters in the body accepts {} or no body.
//
// # Endpoints
//
//	GET  /v1/place?key=K        [Placed]      the owner of the key
//	GET  /v1/owners?key=K&n=3   [Ranked]      the n best members for the key, 1 to 100, and why
//	GET  /v1/members            [Members]     the live members
//	GET  /v1/partitions         [Partitions]  the table: the owner of each partition, and the balance
//	GET  /v1/owned              [Owned]       the partitions of this node
//	GET  /v1/stats              [Stats]       counters and settings of this node
//	GET  /v1/history            [History]     the last events of this node, and samples of half an hour
//	GET  /v1/doctor?over=2s     [doctor.Diagnosis]  problems, what they mean and what to do
//	GET  /v1/events             the event stream: see Events
//	GET  /v1/table              the table and the members, then their changes, for package routing
//	GET  /v1/openapi.json       this list, as OpenAPI 3.1
//	POST /v1/drain?wait=10s     [Changed]     release all partitions; body {"rooms":{…}}: and all rooms
//	POST /v1/undrain?wait=10s   [Changed]     own partitions again
//	POST /v1/leave              [Changed]     respond with 202, then leave the cluster
//	POST /v1/load               [Changed]     body {"units":N} or {"use":{"cpu":N}}: report this load
//	POST /v1/weight             [Changed]     body {"weight":N}: set the weight of this node
//	POST /v1/health             [Changed]     body {"ttl_ms":N}: the application of this node is healthy
//	POST /v1/cordon?wait=10s    [Cordoned]    body {"id":ID,"for_ms":N,"reason":TEXT}: keep a member from owning anything
//	DELETE /v1/cordon?wait=10s  [Cordoned]    body {"id":ID}: end the cordon of a member
//	POST /v1/keys               [Keys]        body {"install":KEY}, {"use":FINGERPRINT} or {"remove":FINGERPRINT}: change the gossip keys of this node
//	     /v1/rooms              see Rooms
//	GET  /healthz               {"status":"ok"} while the agent's loop runs
//	GET  /readyz                {"status":"ready"} while this node is active
//	GET  /reconnect.mjs         the module for browsers: see package reconnect
//	GET  /routing.mjs           package routing for Node.js and browsers
//	GET  /                      the dashboard, for people: see package dashboard
//
// /v1/owned can differ from /v1/partitions, which shows the table. For example, a node whose lease expired
// while its process was paused owns nothing, even if its table still names the node as an owner.
//
// You can store the response of /v1/partitions as a file. To read the file, unmarshal it into a
// [placement.Export]. To compare two tables, use [placement.Diff]. The commands roost diff and roost plan
// also read a stored response.
//
// /v1/drain, /v1/undrain and /v1/cordon wait until all members agree, for at most wait (0 to 10m, default
// 10s). The calls respond with 200 even if the members have not agreed within that time. The field converged
// reports whether the members have agreed. The change continues if the caller disconnects.
//
// /v1/load and /v1/weight don't wait. The agent sends a load with its next heartbeat, and a weight immediately.
// An agent that computes its load (--report-load) rejects units in /v1/load with 409 and load_computed. The
// names in use are those of --resources. A resource that is missing in use keeps its last value.
//
// An application next to the agent can report its health with /v1/health. The application must send the next
// report within ttl_ms (100 to 3,600,000). If the report is late, the application is considered unhealthy,
// and the node drains until two reports in a row are in time. After a report with a ttl_ms of 0, the agent
// expects no further reports. An application that never reports is considered healthy.
//
// /v1/cordon keeps a member from owning anything, for at most a day, even if the member restarts. All members
// honor the cordon. /v1/members shows a cordoned member as draining, with the reason. A second cordon of a
// node replaces the first.
//
// /v1/keys changes the gossip keys of this node only. With install in the body, the node accepts another key
// (base64). With use, the node sends with the key that has this fingerprint. With remove, the node drops the
// key that has this fingerprint. To change the key of a cluster, finish each step on all nodes before the
// next step. A node refuses use while it sees a live member without the key. A node refuses remove while it
// sees a live member that sends with the key. Callers must show a token, or a certificate that the server has
// verified.
//
// /healthz depends only on this process, because a failure of peers or of the network must not make the
// orchestrator restart the process. /healthz responds with stalled if the agent's loop has not completed a
// round for a TTL. The loop stalls if a strategy does not return. The loop also looks stalled for a moment
// after the process was paused.
//
// /readyz responds with a Problem while the node is not ready. The field state of the Problem is joining,
// settling or left. A node whose lease has expired is also reported as joining. If the node has a hold, state
// is the cause of the first hold: duplicate, clock_ahead, isolated, unhealthy, flapping, cordoned or
// draining. The message explains the state. A node that settles after it was isolated is also reported as
// isolated. /v1/stats lists all holds.
//
// A node that is isolated owns nothing, and answers lookups from its last table, with stale set. A node that
// joins again after its lease expired does the same. While that node joins, its /v1/members lists the last
// known members, with stale set.
//
// A drain with {"rooms":{"rate":N,"deadline_ms":N}} also moves the node's rooms to other nodes. The rooms
// move at rate rooms per second (default 10), or faster if the deadline requires it. For details, see package
// evacuate. The call responds before the rooms have moved. To follow the progress, poll the field evacuation
// of /v1/stats until over is true. /v1/undrain stops the evacuation. A second drain replaces the rate and the
// deadline.
//
// # Scopes
//
// A scope is a subset of the members ([cluster.Agent.Scope], or roost agent --scope). With scope=NAME,
// /v1/place, /v1/owners, /v1/partitions, /v1/owned, /v1/events and /v1/table answer for the scope instead of
// all members. The form of the responses does not change. Other endpoints reject the parameter.
//
// version and digest describe the scope's table. in_sync and diverged still compare the agent's table,
// because members do not announce the tables of their scopes. The event stream of a scope contains only the
// scope's members. The stream contains no moves of rooms, because rooms do not belong to scopes.
//
// # Rooms
//
//	POST   /v1/rooms/{room}/resolve    [RoomAssignment]  body {"size":N}: the room's node; pins the room if needed
//	POST   /v1/rooms/{room}/move       [RoomAssignment]  body {"to":ID}: move the room to that node
//	POST   /v1/rooms/{room}/report     [RoomAssignment]  body {"to":ID,"epoch":N}: a client has lost the room's node ID
//	GET    /v1/rooms/{room}/follow     the room's stream: see Events
//	GET    /v1/rooms/{room}?size=N     [RoomDetail]      the room's node, or the node that it would get, and why
//	GET    /v1/rooms/{room}/relays?n=N  [RoomRelays]     the N best additional nodes for a room that is too large for one node
//	DELETE /v1/rooms/{room}            [ReleasedRoom]    the room has ended
//	GET    /v1/rooms?node=ID&limit=N   [Rooms]           the pinned rooms of one node or of all
//	PUT    /v1/rooms/{room}/reservation  [RoomAssignment]  body {"units":N,"until":TIME}: keep units free for the room
//	DELETE /v1/rooms/{room}/reservation  [CancelledReservation]  end the reservation early
//	GET    /v1/reservations            [Reservations]    all reservations
//
// Calls about rooms need [Options].Rooms, which roost agent --redis sets.
//
// A media server in any language runs next to an agent. When a participant arrives for a room, the server
// calls resolve on its agent:
//
//	curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve
//
// If the node in the response is a different node, the server sends the participant to the api_addr of that
// node. The agent does not know the address of a node that it has never met. The node in the response then
// has an empty api_addr and no age_ms, and the server should retry.
//
// If the room is on the agent's own node, hosted is true. The agent then keeps the pin of the room alive, and
// stores size as the number of participants. Without size, the stored number does not change. The server must
// call resolve again whenever the number changes, and at least every touch_within_s seconds. If the server
// does not call in time, the hosting expires, and later the pin expires, too. When the room ends, the server
// deletes the room. If the room moves away, the server receives the event moved. If the server misses the
// event, the next resolve returns the new node.
//
// A service that only directs clients to rooms calls resolve with no_host. The agent then does not host the
// room, even if the room is on its node.
//
// When a client loses its connection to the room's node, the client or its signalling server reports
// this to the agent of any other node. The report has to and epoch of the response that directed the client to the
// lost node. The agent then checks the lost node. If the room has already moved, the agent responds immediately
// with the new node. If the process on the lost node still runs, the agent also responds immediately, and the
// room does not move. If the process does not respond, the agent returns the new node as soon as it has
// confirmed that the process ended, or after at most a second.
//
// A room that is too large for its node needs additional nodes, called relays. The room's node sends each
// stream once to each relay, and the relay serves the stream to its own participants. GET …/relays returns
// the best nodes for the demand of a relay's share of the room. The call pins nothing. The media servers must
// send participants to the relays and forward the streams.
//
// While the store does not respond, agents assign rooms without it. The source of such an assignment is
// degraded, and two nodes may both get the room. The epoch is 0, unless the store confirmed an epoch of the
// room earlier. After this node's lease has expired, resolve responds with not_ready, and the node hosts
// nothing.
//
// The name of a room is 1 to 512 bytes of UTF-8 without control characters, braces and *. The name must be
// escaped in the path: a%2Fb is the room a/b. Escape the room . as %2E and the room .. as %2E%2E. Browsers
// cannot send these two paths. No path can name the room /.
//
// A reservation keeps units free for a room that starts soon, until a time at most 24 h ahead: see
// [affinity.Resolver.Reserve]. Its body states what to keep free like the demand of resolve. PUT replaces the
// room's earlier reservation.
//
// GET calls pin nothing. A list has at most limit rooms (default 1,000, maximum 10,000). If more rooms are
// pinned, the list contains an arbitrary selection. The store runs a query per partition for each list, so
// the agent serves only one list at a time.
//
// # Compression
//
// Responses of 1,400 bytes or more are compressed with gzip for clients that accept it. At most two responses
// are compressed at the same time. If both compressors are busy, a response is sent uncompressed. Event
// streams are not compressed.
//
// # History
//
// /v1/history has what this node has seen since its start, oldest first: the last 200 events of members and
// partitions, and with Options.Rooms the last 200 events of rooms and their store. Each event has a kind and a
// time by the clock of the node. [cluster.EventKind] and [affinity.EventRoomsMoved] list the kinds and their
// fields. Fields that are zero or that the kind does not use are omitted.
//
// An event without member describes the table if its kind is moved. If the event has the field members, it
// stands for several members, because more than 20 events of the same kind and reason occurred at the same
// moment. The field members has their number.
//
// An event with rooms is about all rooms that a node loses for the same reason within a short time: see
// [affinity.Resolver.History]. The event grows while further rooms follow.
//
// For sparklines, the history has a sample every 10 s for the last half hour. The history is lost when the
// process stops.
//
// # Doctor
//
// /v1/doctor runs the checks of roost doctor, as far as this node has the data for them, and lists the worst
// result first. The agent checks twice, with the time over (0 to 5s, default 2s) between the checks, so the
// response takes that long. A counter is a problem only if it grows between the two checks.
//
// Calls with the same over share their checks if they arrive within half of over. A later call then responds
// sooner. The dashboard shows the result.
//
// # Events
//
// /v1/events is a text/event-stream. An event of type batch has an events.Batch as JSON. The first batch of a
// stream is full, which means that it contains everything that the node owns. The agent sends this batch as
// soon as the node has a table. Later batches contain changes.
//
// A client that reconnects sends the id of its last batch in the header Last-Event-ID. EventSource does so
// automatically. If the agent still has the state of that batch, the stream resumes. The first batch then has
// the changes since that state, and is omitted if there are no changes. If the agent no longer has the state,
// for example after a restart or after many changes, the first batch is full. The field full of a batch is
// true if the batch is full.
//
// An event of type moved has an affinity.MovedBatch as JSON, and no id. The batch lists the rooms that have
// moved, if this node moved or knew the rooms. Moves before the start of the stream are not sent. If resync
// is set, the batch may be incomplete, so resolve all rooms again. If the agent pins rooms and the client
// sends a Last-Event-ID, the stream starts with an event of type moved with resync set.
//
// /v1/rooms/{room}/follow is a text/event-stream for one room. The data of each message is a
// [reconnect.Directive] as JSON. The first message names the room's node, and later messages name each new
// node. The stream does not pin the room, so the first message arrives when the room has a node. A client
// that reconnects gets the current directive.
//
// After 15 s ([Options].KeepAlive) without an event, the agent sends a comment. The agent disconnects a
// client that takes longer than 10 s to read an event. A slow client costs only the memory of one batch of
// each type, because the agent merges changes. When the agent stops, it sends a batch that releases
// everything and then ends the stream.
//
// # Table stream
//
// /v1/table is a text/event-stream for processes that are not members. Go applications use it via package
// routing. The data of each event of type update is JSON. The first update has the whole table, as in
// /v1/partitions, and all members. Each later update has only the fields that changed: nodes (all candidates
// of the table), moved, gone, and members (new or changed members). The digest in an update is the digest of
// the table after the update.
//
// During a handoff, running lists the partitions that still run on a member other than the owner in the
// table. If stale is set, the agent's own table may be out of date because the agent is isolated or joins
// again. Updates do not include loads and lease ages.
//
// After keep_alive (default [Options].KeepAlive) without an update, the agent sends a comment. If the agent's
// loop is stalled at that time (see /healthz), the agent ends the stream instead, and rejects new streams
// until the loop continues. If a client reads slowly, the agent merges the changes into one update.
//
// # Errors
//
// The body of every error is a [Problem]. Each 503 has a Retry-After:
//
//	400  bad_request         a parameter or the body is wrong; the message names it
//	413  bad_request         the body is too long
//	415  bad_request         the body has another Content-Type
//	401  unauthorized        the token is missing or wrong
//	403  forbidden           the request comes from a web page of another origin, or changes gossip keys without a certificate while the agent has no token
//	404  not_found           the path does not exist
//	404  no_such_scope       this node has no scope of this name; the message lists its scopes
//	404  no_pin              the room is not pinned
//	404  no_reservation      nothing is reserved for the room
//	404  not_member          no member has the id of a cordon
//	404  unknown_key         this node has no gossip key with that fingerprint
//	405  method_not_allowed  the header Allow lists the methods
//	409  not_live            the target of a move does not accept rooms
//	409  last_candidate      no other member could own anything
//	409  too_many_cordons    64 nodes are cordoned, or were until a moment ago
//	409  load_computed       the agent computes its load, and accepts no posted load
//	409  too_many_reservations  1,000 rooms are reserved
//	409  changed             another caller moved the room at the same time
//	409  encrypts            this node encrypts gossip, and cannot go back to plain text
//	409  key_lacking         live members do not accept the gossip key
//	409  key_in_use          this node or a live member sends with the gossip key
//	409  too_many_keys       this node has four gossip keys
//	503  not_ready           no table yet, or this node joins again and cannot do that now: see /readyz
//	503  stalled             the agent's loop is stalled: see /healthz
//	503  no_members          no member can own a partition
//	503  empty_scope         no member of the scope can own a partition; the message says how many members the scope has
//	503  busy                too many requests, event streams, lists of rooms, or calls of /v1/doctor
//	503  no_capacity         the room exceeds the hard ceiling of every node, or a reservation exceeds the soft ceiling
//	503  no_match            no node has the labels that the room requires
//	503  store_unavailable   the store of pins does not respond
//	503  settings_differ     other nodes of the cluster over this store have other settings
//	503  closed              the agent has left or stopped
//	431  bad_request         more than 100 header fields
//	500  internal            an error in roost
//	501  no_store            there is no store of pins: see [Options].Rooms
//
// # Access
//
// Every client that reaches the listener can read, unless [Options] has TokenReads or a ReadToken. A read
// without a token over plain http must use one of these hosts in its URL: an IP address, localhost, a name
// that does not exist in the public DNS, or one of Options.Hosts. The rule prevents DNS rebinding, where an
// attacker points a host name at this node so that a browser lets the attacker's page read from the node.
//
// Requests other than GET, HEAD and OPTIONS have two more rules:
//
//   - If [Options] has a Token, the request needs the header "Authorization: Bearer <token>". Set a Token
//     unless only this machine reaches the listener.
//   - The handler rejects a request that a browser sends from a page of another origin. Without a Token, it
//     also rejects a request from a page over plain http, if the host name is neither localhost nor one of
//     Options.Hosts.
//
// /healthz, /readyz and /reconnect.mjs need no token. A quarter of the event streams is reserved for clients
// that show a token. For TLS, call Serve of the server from [NewServer] with a TLS listener. For roost agent,
// set --http-tls-cert.
package clusterhttp
