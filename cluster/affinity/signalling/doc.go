// Package signalling has HTTP handlers for a server that directs clients to the nodes of their rooms. It can
// run on any node:
//
//	mux.Handle("GET /where/{room}", signalling.Where(rooms))
//	mux.Handle("POST /whip/{room}", signalling.Redirect(rooms, "https"))
//	mux.Handle("POST /report/{room}", signalling.Report(rooms))
//	mux.Handle("GET /follow/{room}", signalling.Follow(rooms, 0))
//	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
//
// The room is the wildcard {room} of the pattern. Responses are a [reconnect.Directive] as JSON. An error is
// a line of text: 400 for an invalid name or body, 404 for a reported room that has no pin, and 503 with
// Retry-After if no node can take the room now, the store does not answer, or the address of the node is not
// known here. Responses must not be cached, except reconnect.mjs.
//
// The handlers do not authorize clients, and Where and Redirect pin any room that a client names. Put them
// behind your application's checks.
package signalling
