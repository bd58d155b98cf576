// Package httpproxy sends each HTTP request to the server that owns its key. A proxy can forward requests as
// a reverse proxy, redirect clients, or run as middleware inside the servers.
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
// The proxy reaches servers at the api_addr of their nodes. The proxy supports WebSockets and event streams.
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
// In these cases, the proxy sends a request again to the current owner, for up to Config.RetryTimeout:
//
//   - The request has not reached a server.
//   - A server rejects the request with 421 (Misdirected Request), because the server does not own the key.
//   - The request may have reached a server, and its method is safe or idempotent (RFC 9110, section 9.2).
//
// The proxy can send a body again only if the body has at most Config.ReplayBytes. If servers break off a
// request three times, the proxy stops sending the request, because it may be what crashes the servers. The
// client receives all other failures as errors.
//
// # Servers that vanish
//
// A vanished host or a paused process does not reset its connections. If a request may run twice, the proxy
// therefore keeps looking up the owner of its key until response headers arrive. When the key has had another
// owner for a second, the proxy sends the request to the new owner. During this second, a live server can
// still respond, for example while it drains. A request that takes longer runs twice if its key moves. The
// same applies to a long poll that has not sent its headers. When a paused server continues, it may still
// carry out the request, after the next owner has carried out newer requests. Protect such writes with a
// fencing token.
//
// Event streams and WebSockets send their headers at once, and do not end when their key moves, except that
// Config.CloseMoved closes WebSockets. Over HTTP/1,
// a stream from a vanished host ends when TCP keep-alive fails, after about 2.5 minutes. A stream from a
// paused process never ends, so clients should expect heartbeats. Over HTTP/2, the proxy closes a connection
// that does not answer a ping, with all its streams, after 6 s.
//
// A request that must not be sent again waits for its server. Such a request is a POST or PATCH, or a request
// whose body is too long to keep or of unknown length. Over HTTP/2, the request waits for 6 s if the
// connection is dead. Over HTTP/1, the request waits for minutes if the host has vanished, until TCP reports
// an error. If the process is paused, the request waits until the client gives up. To limit the wait of all
// requests, set the ResponseHeaderTimeout of Config.Transport. When the ResponseHeaderTimeout expires, the
// proxy responds with 504. By then, no new requests go to the vanished server, so its connections are idle
// and are closed after IdleConnTimeout.
//
// # Loops
//
// While their tables differ, for example for some hundred milliseconds when a node drains, two servers could
// send a request back and forth. The header Roost-Hops counts how often a request was forwarded. If a server
// would forward a request more than Config.Hops times in total, it responds with 421. The first proxy of the
// request then sends it again. The other proxies only pass the 421 on. A handler that has already done
// something must therefore not respond with 421. The header does not count redirects, so servers can redirect
// a client back and forth until their tables agree or the client gives up. A client that gave up should try
// again.
//
// # Headers
//
// The proxy adds the client's address to X-Forwarded-For. The proxy keeps X-Forwarded-Host and
// X-Forwarded-Proto if they are present, and sets them otherwise, because the proxy usually runs behind the
// server that terminates TLS. The proxy does not change Host.
//
// # Errors
//
//	400  the request has no key, or the client broke off its body
//	413  the body is larger than http.MaxBytesReader in front of the proxy allows
//	421  the servers disagreed about the owner of the key for RetryTimeout, or one of them has read a part of a body that is not kept
//	502  the server broke off, and the request must not be sent again, or RetryTimeout has expired
//	503  no table yet, no owner, or the owner was unreachable for RetryTimeout; with Retry-After
//	504  the server has not answered by a deadline of the request's context, or within a timeout of Config.Transport
//
// The body of an error is a line of text.
package httpproxy
