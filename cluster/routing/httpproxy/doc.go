// Package httpproxy sends HTTP requests to the server that owns their key: as a reverse proxy, by redirects, or
// as middleware of the server itself.
//
//	c, err := routing.Start(ctx, routing.Config{Agents: agents})
//	…
//	proxy, err := httpproxy.New(httpproxy.Config{
//		Place: httpproxy.FromClient(c),
//		Key:   httpproxy.FromPath(2), // /rooms/standup/join: standup
//	})
//	…
//	http.ListenAndServe("10.0.0.9:8080", proxy)
//
// Servers are reached at the api_addr of their nodes. WebSockets and event streams pass through.
//
// # Inside a server
//
// With Config.Local, a request for a key that is owned here is served here, and any other one is sent to
// its owner:
//
//	Place: func(key string) (string, bool, error) {
//		if agent.Snapshot().Stale() { // its last table may name this node, which owns nothing
//			return "", false, errors.New("this node is isolated or fenced")
//		}
//		owner, err := agent.Place(key)
//		if err != nil {
//			return "", false, err
//		}
//		return owner.APIAddr, agent.IsOwner(key), nil
//	},
//	Local: mux,
//
// # Retries
//
// A request that has reached no server is sent again: to the owner by then, for up to Config.RetryTimeout. So
// is a request that a server rejects with 421 (Misdirected Request), which is the answer of a server that
// does not own the key, and a request that may have reached a server if its method is safe or idempotent (RFC
// 9110, section 9.2). A body is sent again if it has at most Config.ReplayBytes. A request that three servers
// broke off, or one three times, is not sent to another one: it may be what ends them. All other failures are
// answered by an error.
//
// # Servers that vanish
//
// A host that vanished, and a process that is paused, reset no connection. While a request has no headers of
// an answer, and may run twice, the proxy looks for the owner of its key. When the key has had another owner
// for a second, the request goes there. A server that lives has this second for its answer, as when it
// drains; a request that takes longer runs twice when its key moves. So does a long poll that holds back its
// headers: it is better off at the new owner. A server that was paused may still carry out a request when it
// runs again, after newer ones at the next owner: fence such writes.
//
// Event streams and WebSockets send their headers at once, and a move of their key does not end them. Over
// HTTP/1, one to a host that vanished ends when TCP keep-alive gives up, after about 2.5 minutes, and one to
// a paused process never: clients should expect heartbeats. Over HTTP/2, a connection without an answer to a
// ping is closed after 6 s, with all its streams.
//
// A request that must not be sent again waits for its server: a POST or PATCH, and one whose body is too long
// to be kept, or of unknown length. Over HTTP/2 it waits for 6 s if the connection is dead. Over HTTP/1 it
// waits until TCP gives up on a host that vanished, which takes minutes, and for a paused process as long as
// the client does. A ResponseHeaderTimeout of Config.Transport bounds that, for all requests, by 504. No
// request goes to the server by then, so that connections to it stay idle, and are closed after
// IdleConnTimeout.
//
// # Loops
//
// While their tables differ, as for some hundred milliseconds when a node drains, two servers could send a
// request to and fro. The header Roost-Hops counts how often a request was sent on: a server that would send
// it on once more than Config.Hops times answers 421. Then the first proxy of the request sends it again; the
// others pass a 421 on. So a handler that has done something must not answer 421. Redirects are not counted:
// a client is sent to and fro until the tables agree or it gives up. A client that gave up should ask again.
//
// # Headers
//
// The client is added to X-Forwarded-For. X-Forwarded-Host and X-Forwarded-Proto stay as they arrive, or are
// set: the proxy is meant to stand behind what ends TLS. Host stays as it is.
//
// # Errors
//
//	400  the request has no key, or the client broke off its body
//	413  the body is larger than http.MaxBytesReader in front of the proxy admits
//	421  the servers disagreed about the owner of the key for RetryTimeout, or one had begun to read a body that is not kept
//	502  the server broke off, and the request must not be sent again, or RetryTimeout has gone
//	503  no table yet, no owner, or the owner was not reached within RetryTimeout; with Retry-After
//	504  the server has not answered by a deadline of the request's context, or within a timeout of Config.Transport
//
// The body of an error is a line of text.
package httpproxy
