// Package signalling has HTTP handlers for a server that leads clients to the nodes of their
// rooms. It runs on any node of the fleet:
//
//	mux.Handle("GET /where/{room}", signalling.Where(rooms))
//	mux.Handle("POST /whip/{room}", signalling.Redirect(rooms, "https"))
//	mux.Handle("POST /report/{room}", signalling.Report(rooms))
//	mux.Handle("GET /follow/{room}", signalling.Follow(rooms, 0))
//	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
//
// The room is the wildcard {room} of the pattern. Answers are a [reconnect.Directive] as JSON.
// An error is a line of text: 400 for an invalid name or body, 404 for a room that is
// reported or lost and has no pin, and 503 with Retry-After if no node can take the room now, the store
// does not answer, or the address of the node is not known here. No answer may be cached,
// apart from reconnect.mjs.
//
// The handlers authorize no client, and Where and Redirect pin any room that a client names. Put
// them behind the checks of the application.
package signalling
