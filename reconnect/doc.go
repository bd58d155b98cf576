// Package reconnect moves a client to the node that serves its room now. A server
// sends a [Directive] when a room has moved; a [Machine] decides when to connect and
// when to resolve the room again; a [Driver] runs the Machine on real time.
//
// An ICE restart cannot replace the new connection: another process has another
// DTLS identity.
package reconnect
