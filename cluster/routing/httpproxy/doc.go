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
// The proxy reaches servers at the api_addr of their nodes. WebSockets and event streams work.
//
// # Inside a server
//
// With Config.Local, a server handles requests for its own keys itself, and sends all others to their owners:
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
// For up to Config.RetryTimeout, the proxy sends a request again to the present owner in these cases:
//
//   - The request has not reached a server.
//   - A server rejects it with 421 (Misdirected Request), because it does not own the key.
//   - The request may have reached a server, and its method is safe or idempotent (RFC 9110, section 9.2).
//
// A body can only be sent again if it has at most Config.ReplayBytes. After servers have broken off a request
// three times, the proxy does not send it again, because it may be what crashes them. All other failures are
// errors.
//
// # Servers that vanish
//
// A vanished host or a paused process does not reset its connections. So while a request that may run twice
// has no response headers, the proxy keeps looking up the owner of its key. When the key has had another
// owner for a second, the proxy sends the request there. A live server, for example one that drains, has this
// second to respond. A request that takes longer runs twice if its key moves, and so does a long poll that
// has not sent its headers. A server that was paused may still carry out the request when it continues, after
// newer requests at the next owner, so fence such writes.
//
// Event streams and WebSockets send their headers at once, and do not end when their key moves. Over HTTP/1,
// a stream from a vanished host ends when TCP keep-alive gives up, after about 2.5 minutes. A stream from a
// paused process never ends, so clients should expect heartbeats. Over HTTP/2, a connection that does not
// answer a ping is closed after 6 s, with all its streams.
//
// A request that must not be sent again waits for its server: a POST or PATCH, or a request whose body is too
// long to be kept or of unknown length. Over HTTP/2, it waits for 6 s if the connection is dead. Over HTTP/1,
// it waits until TCP gives up on a vanished host, which takes minutes, and for a paused process as long as
// the client waits. To limit this for all requests, set the ResponseHeaderTimeout of Config.Transport, which
// responds with 504. By then no requests go to that server any more, so its connections are idle, and are
// closed after IdleConnTimeout.
//
// # Loops
//
// While their tables differ, for example for some hundred milliseconds when a node drains, two servers could
// send a request back and forth. The header Roost-Hops counts how often a request was forwarded. A server
// that would forward it more than Config.Hops times responds with 421. The first proxy of the request then
// sends it again, and the others pass the 421 on. So a handler that has done something must not respond with
// 421. Redirects are not counted, so a client may be redirected back and forth until the tables agree or it
// gives up. A client that gave up should try again.
//
// # Headers
//
// The proxy adds the client to X-Forwarded-For. It keeps X-Forwarded-Host and X-Forwarded-Proto if they are
// present and sets them otherwise, because it is meant to run behind the server that terminates TLS. It does
// not change Host.
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
