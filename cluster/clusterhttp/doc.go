// Package clusterhttp serves a [cluster.Agent] over HTTP and asks one: a JSON API
// for programs in any language, a stream of events, probes for an orchestrator.
//
//	srv := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{}))
//
// # Endpoints
//
//	GET  /v1/place?key=K        [Placed]      who owns the key
//	GET  /v1/owners?key=K&n=3   [Ranked]      the n best members for it, 1 to 100
//	GET  /v1/members            [Members]     who is live
//	GET  /v1/partitions         [Partitions]  who owns each partition, how evenly
//	GET  /v1/owned              [Owned]       what this node owns
//	GET  /v1/events             the stream, see below
//	POST /v1/drain?wait=10s     [Changed]     give up what this node owns
//	POST /v1/undrain?wait=10s   [Changed]     own again
//	POST /v1/leave              [Changed]     202; then leave the cluster
//	POST /v1/load               [Changed]     body {"units":N}: report this load
//	POST /v1/weight             [Changed]     body {"weight":N}: change this node's share
//	GET  /healthz               {"status":"ok"} while the agent runs
//	GET  /readyz                {"status":"ready"} while this node is active
//
// Everything is one node's view. An answer is made from one snapshot, so that its
// parts agree with each other; two answers need not. What is in /v1/owned is not
// to be found in /v1/partitions, which tells of the table: a node whose own lease
// ran out, because its process was stopped, owns nothing whatever its table says.
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
// # Events
//
// /v1/events is a text/event-stream. Each event is of the kind batch, its data is
// an events.Batch as JSON, its id the batch's version. The first one holds all
// that the node owns, and comes as soon as it has a table; later ones hold what
// changed. Last-Event-ID is of no use: a new stream begins anew.
//
// After 15 s of silence comes a comment. A client that takes longer than 10 s to
// read an event is dropped; until then it costs one batch, since what happens
// meanwhile merges. The stream ends when the agent does, after a batch that
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
//	405  method_not_allowed  the header Allow has those that are
//	503  not_ready           no table yet, or see /readyz; Retry-After is set
//	503  no_members          nobody can own anything
//	503  busy                too many event streams; Retry-After is set
//	503  closed              the agent has left or stopped
//	500  internal            a fault of ours
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
package clusterhttp
