// Package clusterhttp is the HTTP API of a [cluster.Agent] and its client: JSON for
// programs in any language, a stream of events, and probes for an orchestrator.
//
//	srv := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{}))
//
// # Endpoints
//
//	GET  /v1/place?key=K        [Placed]      the owner of the key
//	GET  /v1/owners?key=K&n=3   [Ranked]      the n best members for it, 1 to 100, and why
//	GET  /v1/members            [Members]     the live members
//	GET  /v1/partitions         [Partitions]  the table: the owner of each partition, and the balance
//	GET  /v1/owned              [Owned]       the partitions of this node
//	GET  /v1/stats              [Stats]       counters and settings of this node
//	GET  /v1/history            [History]     what this node saw: its last 200 events, and samples of half an hour
//	GET  /v1/doctor?over=2s     [doctor.Diagnosis]  problems, what they mean and what to do
//	GET  /v1/events             the stream, see below
//	GET  /v1/table              the table and the members, then their changes, for package routing
//	GET  /v1/openapi.json       this list, as OpenAPI 3.1
//	POST /v1/drain?wait=10s     [Changed]     release all partitions; body {"rooms":{…}}: and all rooms
//	POST /v1/undrain?wait=10s   [Changed]     own partitions again
//	POST /v1/leave              [Changed]     202; then leave the cluster
//	POST /v1/load               [Changed]     body {"units":N}: report this load
//	POST /v1/weight             [Changed]     body {"weight":N}: set the weight of this node
//	POST /v1/health             [Changed]     body {"ttl_ms":N}: the application of this node is healthy
//	POST /v1/cordon?wait=10s    [Cordoned]    body {"id":ID,"for_ms":N,"reason":TEXT}: have a member own nothing
//	DELETE /v1/cordon?wait=10s  [Cordoned]    body {"id":ID}: end the cordon of a member
//	POST /v1/keys               [Keys]        body {"install":KEY}, {"use":FINGERPRINT} or {"remove":FINGERPRINT}: change the gossip keys of this node
//	     /v1/rooms              see Rooms
//	GET  /healthz               {"status":"ok"} while the agent's loop goes round
//	GET  /readyz                {"status":"ready"} while this node is active
//	GET  /reconnect.mjs         the module for browsers: see package reconnect
//	GET  /routing.mjs            package routing for Node.js and browsers
//	GET  /                      the dashboard, for people: see package dashboard
//
// Every response shows the view of one node. A response is built from one snapshot, so its parts agree with
// each other, but two responses may differ. /v1/owned may differ from /v1/partitions, which shows the table.
// For example, a node whose lease expired while its process was paused owns nothing, even if its table still
// names it.
//
// You can store the response of /v1/partitions as a document. [placement.Export] reads it, for
// [placement.Diff] and the commands roost diff and roost plan.
//
// A key is 1 to 4,096 bytes of UTF-8. Unknown parameters are ignored; a known parameter
// must not appear twice. HEAD works wherever GET does.
//
// A body is a JSON object of at most 64 kB, with Content-Type application/json and no
// unknown fields. Calls without parameters in the body take {} or no body.
//
// /v1/drain, /v1/undrain and /v1/cordon wait until all members agree, for at most wait (0 to 10m, default
// 10s). They respond with 200 in either case, and converged shows the result. The change continues if the
// caller disconnects. /v1/load and /v1/weight don't wait. A load is sent with the next heartbeat, and a
// weight at once. An agent that computes its load (--report-load) rejects /v1/load with 409 and
// load_computed.
//
// An application next to the agent can report its health with /v1/health. If the next report does not follow
// within ttl_ms (100 to 3,600,000), the application counts as unhealthy, and the node drains until two
// reports in a row are in time. A ttl_ms of 0 ends that. An application that never reports counts as healthy.
//
// /v1/cordon keeps a member from owning anything, in the view of all members, for at most a day, even if it
// restarts. The member shows as draining, with the reason. A second cordon of a node replaces the first.
//
// /v1/keys makes one of three steps on this node only: install accepts another key (base64), use sends with a
// key, and remove drops a key. use and remove take a fingerprint. To change the key of a cluster, finish each
// step on all nodes before the next one. A node refuses use while it sees a live member without the key, and
// remove while it sees a live member that sends with it. Callers must show a token, or a certificate that the
// server has verified.
//
// /healthz only depends on this process, because a failure of peers or of the network must not restart it. It
// responds with stalled if the agent's loop has not completed a round for a TTL, because a strategy does not
// return or the process was paused until a moment ago.
//
// /readyz responds with a Problem while the node is not ready. Its field state is joining (also after its
// lease expired), settling or left or, if the node has a hold, the cause of the first one: duplicate,
// clock_ahead, isolated, unhealthy, flapping, cordoned or draining. The message explains it. A node that
// settles after it was isolated also counts as isolated. /v1/stats has all holds.
//
// A node that is isolated, or joins again after its lease expired, owns nothing and answers lookups from its
// last table, with stale set. While it joins again, /v1/members has the last known members, with stale set.
//
// A drain with {"rooms":{"rate":N,"deadline_ms":N}} also moves the node's rooms to other nodes, at rate rooms
// per second (default 10), or faster if the deadline requires it: see package evacuate. It responds before
// they have moved. evacuation in /v1/stats has the progress until over is true. /v1/undrain stops it. A
// second drain replaces the rate and the deadline.
//
// # Scopes
//
// With scope=NAME, /v1/place, /v1/owners, /v1/partitions, /v1/owned, /v1/events and /v1/table answer for a
// scope of the agent ([cluster.Agent.Scope], or roost agent --scope) instead of all members. The responses
// have the same form. version and digest are those of the scope's table, but in_sync and diverged compare the
// agent's table, because members do not announce the tables of their scopes. A stream of events only has the
// scope's members, and no moves of rooms, which do not belong to scopes.
//
// # Rooms
//
//	POST   /v1/rooms/{room}/resolve    [RoomAssignment]  body {"size":N}: the room's node; pins the room if needed
//	POST   /v1/rooms/{room}/move       [RoomAssignment]  body {"to":ID}: move the room to that node
//	POST   /v1/rooms/{room}/report     [RoomAssignment]  body {"to":ID,"epoch":N}: a client has lost the room's node ID
//	GET    /v1/rooms/{room}/follow     the room's stream, see below
//	GET    /v1/rooms/{room}?size=N     [RoomDetail]      the room's node, or the node it would get, and why
//	GET    /v1/rooms/{room}/relays?n=N  [RoomRelays]       the N best further nodes for a room that is too large for its own
//	DELETE /v1/rooms/{room}            [ReleasedRoom]    the room has ended
//	GET    /v1/rooms?node=ID&limit=N   [Rooms]           the pinned rooms of one node or of all
//
// These calls need [Options].Rooms, which roost agent --redis sets.
//
// A media server in any language runs next to an agent. When a participant arrives for a room, the server
// calls resolve of its agent:
//
//	curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve
//
// If node is a different node, the server sends the participant to its api_addr. If this node has never met
// that node, node only has an id and an incarnation, with an empty api_addr and no age_ms. The server should
// then ask again.
//
// Otherwise hosted is true: the agent keeps the pin of the room alive, and stores size as its number of
// participants. Without size, the number does not change. The server must call resolve again whenever the
// number changes, and at least every touch_within_s seconds, because otherwise the hosting expires, and then
// the pin. When the room ends, the server deletes it. If the room moves away, the server learns it from the
// event moved, or at the latest from the response to its next resolve.
//
// A service that only directs clients to rooms sends no_host with its resolve. Then this agent does not host
// the room, even if the room is on its node.
//
// When a client has lost its connection to the room's node, the client or its signalling server calls report
// of the agent of any other node, with to and epoch of the response that directed it there. The agent checks
// the node itself. It responds at once if the room lives elsewhere by now, or if the process on that node
// runs, in which case the room stays. Otherwise it responds with the new node as soon as the end of the
// process is confirmed, or after at most a second.
//
// A room that is too large for its node needs further nodes, its relays. The room's node sends each stream
// once to each relay, and the relay serves it to the participants there. GET …/relays returns the best nodes
// for the demand of a relay's share of the room. It pins nothing. The media servers have to send participants
// there and forward the streams.
//
// While the store does not respond, source is degraded, and epoch is 0 unless the store has confirmed it
// before. Two nodes may then both get the room. After this node's lease has expired, resolve responds with
// not_ready, and the node hosts nothing.
//
// The name of a room is 1 to 512 bytes of UTF-8 without control characters, braces and *. It is escaped in
// the path: a%2Fb is the room a/b. The rooms . and .. are %2E and %2E%2E there, which browsers do not send.
// The path cannot name the room /.
//
// GET pins nothing. A list has at most limit rooms (default 1,000, maximum 10,000). If there are more, it has
// any of them. A list costs the store a query per partition, so the agent serves only one list at a time.
//
// # Compression
//
// Responses of 1,400 bytes or more are compressed with gzip for clients that accept it. At most two responses
// are compressed at the same time. In a rush, others are sent uncompressed. Streams of events are not
// compressed.
//
// # History
//
// /v1/history has the last 200 events that this node has seen since its start, oldest first. Each event has a
// time, by the clock of the node, and a kind. Missing fields are zero or do not belong to the kind.
// [cluster.EventKind] lists the kinds and their fields. An event without member is about the table (moved),
// or about as many members as the field members says, because more than 20 events at the same moment had the
// same kind and reason. For sparklines, there is a sample for every 10 s of the last half hour. The history
// ends with the process.
//
// # Doctor
//
// /v1/doctor has the checks of roost doctor, worst first, as far as this node knows. It checks twice, with
// the time over (0 to 5s, default 2s) in between, so the response takes that long. A counter that grows
// between the checks is a problem, and earlier growth is not. A call joins an examination with the same over
// that began less than half of over ago, and so takes less time. The dashboard shows the result.
//
// # Events
//
// /v1/events is a text/event-stream. An event of type batch has an events.Batch as JSON. The first batch of a
// stream is full: it has everything that the node owns, and arrives as soon as the node has a table. Later
// batches have changes.
//
// A client that reconnects sends the id of its last batch in the header Last-Event-ID, as EventSource does by
// itself. If the agent still has that state, the stream resumes: its first batch has the changes since then,
// and is omitted if there are none. Otherwise, for example after a restart of the agent or after many
// changes, the first batch is full. The field full shows whether it is.
//
// An event of type moved has an affinity.MovedBatch as JSON, and no id. It lists rooms that have moved, if
// this node moved or knew them. Moves before the start of the stream are not sent. If resync is set, more
// rooms may have moved than the batch lists, so resolve all rooms again. A stream with a Last-Event-ID starts
// with such an event.
//
// /v1/rooms/{room}/follow is such a stream for one room: where it lives, and then each new node of the room,
// as messages with a [reconnect.Directive] as JSON. It pins nothing, so the first message arrives when the
// room has a node. A client that reconnects gets the present directive.
//
// After 15 s without an event, the agent sends a comment. It disconnects a client that takes longer than 10 s
// to read an event. Until then, a slow client only costs the memory of one batch of each type, because
// changes are merged. The stream ends with the agent, after a batch that releases everything.
//
// # Following
//
// /v1/table is a text/event-stream for processes that are not members. Go programs use it via package
// routing. An event of type update has JSON. The first update has the whole table, as in /v1/partitions, and
// all members. Each later one has the fields that changed: nodes (all candidates of the table), moved, gone,
// and members (new or changed ones). It leads to the table with its digest. During a handoff, running lists
// the partitions that run on another member than the table names. If stale is set, the agent's own table may
// be out of date, because it is isolated or joins again. Loads and ages are not included.
//
// The agent sends a comment after keep_alive without an update (default 15 s). If its loop is stalled then,
// as /healthz says, it ends the stream, and rejects others until the loop continues. After a slow read there
// is only one update, because changes are merged.
//
// # Errors
//
// The body of every error is a [Problem]. Each 503 has a Retry-After:
//
//	400  bad_request         a parameter or the body is wrong; the message names it
//	413  bad_request         the body is too long
//	415  bad_request         the body has another Content-Type
//	401  unauthorized        the token is missing or wrong
//	403  forbidden           the request comes from a web page of another origin, or changes gossip keys where no caller has to prove itself
//	404  not_found           no such path
//	404  no_such_scope       this node has no scope of this name; the message names those that it has
//	404  no_pin              the room is not pinned
//	404  not_member          no member has the id of a cordon
//	404  unknown_key         this node has no gossip key with that fingerprint
//	405  method_not_allowed  the header Allow lists the methods
//	409  not_live            the target of a move does not accept rooms
//	409  last_candidate      no other member could own anything
//	409  too_many_cordons    64 nodes are cordoned, or were until a moment ago
//	409  load_computed       the agent computes its load, and takes no posted one
//	409  changed             another caller moved the room at the same time
//	409  encrypts            this node encrypts gossip, and cannot go back to plain text
//	409  key_lacking         live members do not accept the gossip key
//	409  key_in_use          this node or a live member sends with the gossip key
//	409  too_many_keys       this node has four gossip keys
//	503  not_ready           no table yet, or this node joins again and cannot do that now: see /readyz
//	503  stalled             the agent's loop stands still: see /healthz
//	503  no_members          no member can own a partition
//	503  empty_scope         no member of the scope can; the message says how many belong to it
//	503  busy                too many requests, event streams, lists of rooms, or calls of /v1/doctor
//	503  no_capacity         the room exceeds the hard ceiling of every node
//	503  no_match            no node has the labels that the room requires
//	503  store_unavailable   the store of pins does not respond
//	503  settings_differ     other nodes of the cluster over this store have other settings
//	503  closed              the agent has left or stopped
//	431  bad_request         more than 100 header fields
//	500  internal            an error in roost
//	501  no_store            there is no store of pins: see [Options].Rooms
//
// # Limits
//
// At most MaxStreams + 1,024 requests are served at the same time, by any server that embeds the handler.
// Requests with a valid token do not count, and probes (/healthz, /readyz, /metrics) have 2,304 additional
// places. A client has 30 s to read a response. If more than 512 clients are reading responses, or these take
// more than 64 MB, the responses that have taken longest are cut off. If your server does not come from
// [NewServer], set [ConnContext] and, with HTTP/2, a WriteByteTimeout.
//
// # Access
//
// Every client that reaches the listener may read, unless [Options] has TokenReads or a ReadToken. Without a
// token, a read over plain http must address the node with an IP address, localhost, a name that does not
// exist in the public DNS, or one of Options.Hosts. Otherwise an attacker could point a host name at this
// node (DNS rebinding), and a browser would let the attacker's page read from it. Requests other than GET,
// HEAD and OPTIONS
//
//   - need the header "Authorization: Bearer <token>" if [Options] has a Token; set a
//     Token unless only this machine reaches the listener,
//   - are rejected if a browser sends them from a page of another origin, or, without a
//     Token, over plain http under a host name.
//
// /healthz, /readyz and /reconnect.mjs need no token. A quarter of the event streams is reserved for clients
// that show a token. For TLS, pass a TLS listener to Serve of [NewServer]. roost agent has --http-tls-cert.
package clusterhttp
