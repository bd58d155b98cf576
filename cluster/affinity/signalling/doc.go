// Package signalling provides HTTP handlers for a server that directs clients to the nodes of their rooms.
// You can run the handlers on any node:
//
//	mux.Handle("GET /where/{room}", signalling.Where(rooms))
//	mux.Handle("POST /whip/{room}", signalling.Redirect(rooms, "https"))
//	mux.Handle("POST /report/{room}", signalling.Report(rooms))
//	mux.Handle("GET /follow/{room}", signalling.Follow(rooms, 0))
//	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
//
// The wildcard {room} in the pattern is the name of the room. A successful response is a
// [reconnect.Directive] as JSON. An error response is a line of text. The status is 400 for an invalid name
// or body, and 404 for a reported room without a pin. The status is 503 with Retry-After if no node can take
// the room now, the store does not answer, or this node does not know the address of the room's node.
// Responses must not be cached, except reconnect.mjs.
//
// The handlers do not authorize clients, and Where and Redirect pin any room that a client names. Put the
// handlers behind your application's authorization checks.
package signalling
