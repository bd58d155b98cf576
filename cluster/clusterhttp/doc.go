//docstest:sh roost agent --id a --redis redis://127.0.0.1:6379

// Package clusterhttp serves a [cluster.Agent] over HTTP and asks one: a JSON API
// for programs in any language, a stream of events, probes for an orchestrator.
//
//	srv := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{}))
//
// # Endpoints
//
//	GET  /v1/place?key=K        [Placed]      who owns the key
//	GET  /v1/owners?key=K&n=3   [Ranked]      the n best members for it, 1 to 100, and why
//	GET  /v1/members            [Members]     who is live
//	GET  /v1/partitions         [Partitions]  the table: who owns each partition, how evenly
//	GET  /v1/owned              [Owned]       what this node owns
//	GET  /v1/stats              [Stats]       what this node counted, and its settings
//	GET  /v1/events             the stream, see below
//	GET  /v1/openapi.json       this list, as OpenAPI 3.1
//	POST /v1/drain?wait=10s     [Changed]     give up what this node owns
//	POST /v1/undrain?wait=10s   [Changed]     own again
//	POST /v1/leave              [Changed]     202; then leave the cluster
//	POST /v1/load               [Changed]     body {"units":N}: report this load
//	POST /v1/weight             [Changed]     body {"weight":N}: change this node's share
//	     /v1/rooms              see Rooms
//	GET  /healthz               {"status":"ok"} while the agent runs
//	GET  /readyz                {"status":"ready"} while this node is active
//	GET  /                      the dashboard, for people: see package dashboard
//
// Everything is one node's view. An answer is made from one snapshot, so that its
// parts agree with each other; two answers need not. What is in /v1/owned is not
// to be found in /v1/partitions, which tells of the table: a node whose own lease
// ran out, because its process was stopped, owns nothing whatever its table says.
//
// The table is a document to keep: [placement.Export] reads it again, for
// [placement.Diff] and the commands roost diff and roost plan.
//
// A key is 1 to 4,096 bytes of UTF-8. Parameters that are not known are ignored,
// one that is known must not be given twice. HEAD works wherever GET does.
//
// A body is a JSON object of at most 64 kB, with Content-Type application/json
// and no unknown fields. The calls that need none take {} or nothing.
//
// /v1/drain and /v1/undrain wait until all members have agreed, as long as wait
// says: 0 to 60s, by default 10s. Both answer 200 either way; converged tells
// which. What was asked for is done even if the caller hangs up. /v1/load is
// told to others with the next heartbeat, /v1/weight at once; neither waits.
//
// /healthz speaks of this process alone, so that nothing is restarted for what
// its peers or the network do. /readyz has a Problem with the field state while
// the node is joining (its lease ran out), settling, draining or left.
//
// # Rooms
//
//	POST   /v1/rooms/{room}/resolve    [RoomAssignment]  body {"size":N}: where it lives, pinned now if need be
//	POST   /v1/rooms/{room}/move       [RoomAssignment]  body {"to":ID}: have it live there
//	GET    /v1/rooms/{room}?size=N     [RoomDetail]      where it lives or would, and why
//	DELETE /v1/rooms/{room}            [ReleasedRoom]    it has ended
//	GET    /v1/rooms?node=ID&limit=N   [Rooms]           those that are pinned, to a node or any
//
// They need [Options].Rooms, as roost agent --redis has it.
//
// A media server in any language runs beside an agent. When a participant arrives
// for a room, it asks that agent to resolve the room:
//
//	curl -d '{"size":4}' -H 'Content-Type: application/json' 127.0.0.1:8401/v1/rooms/room-17/resolve
//
// If node is another one than its own, it sends the participant there; api_addr is
// what that node was started with. Otherwise hosted is true: the agent keeps the
// room's pin alive, and size counts as its participants, as before if it is missing. The
// server asks again whenever that number changes, and at least every
// touch_within_s seconds: else the hosting lapses, and then the pin. When the room
// is over it deletes the room. It learns that a room has been taken from it by the
// event moved, or at the latest by the answer to its next resolve.
//
// While the store does not answer, source is degraded, and the epoch 0 unless the
// store had confirmed it before: two nodes may then be told that the room is theirs. When this node's lease has run out,
// resolve answers not_ready, and nothing is hosted here any more.
//
// The name of a room is 1 to 512 bytes of UTF-8 without control characters, braces
// and *, and escaped in the path: a%2Fb is the room a/b. The rooms . and .. are
// %2E and %2E%2E there, which browsers do not send; the room / cannot be named at
// all. GET pins nothing. A list holds 1,000 rooms unless limit says otherwise, up
// to 10,000; which ones, if there are more, is left open. It costs the store in
// proportion to the partitions, so one is made at a time.
//
// # Events
//
// /v1/events is a text/event-stream. Events of the kind batch have an events.Batch
// as JSON. The first one of a stream is full: it holds all that the node owns, and
// comes as soon as it has a table. Later ones hold what changed.
//
// A client whose stream broke sends the id of the last batch that it got in the
// header Last-Event-ID, as EventSource does by itself. If the agent remembers it,
// the new stream goes on from there, and its first batch holds what changed since,
// if anything did. Else, as when the agent was restarted or much has changed, it
// begins with a full one. The field full tells which.
//
// Events of the kind moved have an affinity.MovedBatch as JSON, and no id: rooms
// that live elsewhere now, as far as this node moved them or knew of them. What
// moved before the stream began is not told. With resync set, more may have moved
// than is listed: resolve all rooms again. A stream that was asked for with
// Last-Event-ID begins with that.
//
// After 15 s of silence comes a comment. A client that takes longer than 10 s to
// read an event is dropped; until then it costs a batch of each kind, since what
// happens meanwhile merges. The stream ends when the agent does, after a batch that
// releases everything.
//
// # Errors
//
// The body of every error is a [Problem]:
//
//	400  bad_request         a parameter or the body is wrong; the message names it
//	413  bad_request         the body is too long
//	415  bad_request         the body's Content-Type is another
//	401  unauthorized        no token, or not this one
//	403  forbidden           from a web page of another origin
//	404  not_found           no such path
//	404  no_pin              the room is not pinned
//	405  method_not_allowed  the header Allow has those that are
//	409  not_live            the node to move a room to is none that takes rooms
//	409  changed             somebody else moved the room meanwhile
//	503  not_ready           no table yet, or see /readyz; Retry-After is set
//	503  no_members          nobody can own anything
//	503  busy                too many event streams or lists of rooms; Retry-After is set
//	503  no_capacity         all nodes are too full for the room, by the hard ceiling
//	503  store_unavailable   the store of pins does not answer; Retry-After is set
//	503  closed              the agent has left or stopped
//	431  bad_request         more than 100 header fields
//	500  internal            a fault of ours
//	501  no_store            there is no store of pins: see [Options].Rooms
//
// # Who may do what
//
// Whoever reaches the listener may read. Requests that are not GET, HEAD or
// OPTIONS
//
//   - need the header "Authorization: Bearer <token>" if [Options] has a Token;
//     set one unless only this machine reaches the listener,
//   - are refused if a browser sends them from a page of another origin, or, as
//     far as there is no Token, over plain http under a host name, which the
//     page's owner could have led here.
//
// There is no TLS: put a proxy in front where the network is not trusted.
//
//docstest:text "id":"a" … "hosted":true,"touch_within_s":3600
package clusterhttp
