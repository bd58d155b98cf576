// Package reconnect moves a client to the node that currently serves its room. A server sends a [Directive]
// when a room has moved, and a client can also notice that it has lost its connection. A [Driver] handles both
// cases. Call Follow with each directive, and call Lost when the connection is lost.
//
//	driver := reconnect.Driver{Connect: connect, Resolve: askServer}
//	…
//	err := driver.Follow(ctx, directive) // for each directive from the server, in a goroutine
//	…
//	err = driver.Lost(ctx, directive) // if the connection to its node is lost
//
// The Driver runs a [Machine], which decides when to ask where the room lives and when to connect. Programs with
// their own event loop can use the Machine directly. reconnect.mjs provides the same for JavaScript.
//
// An ICE restart cannot replace the new connection, because the new process has a different DTLS identity.
//
// # States
//
//	state      steps                                       next state
//	idle       none                                        seeking: Directed, Lost
//	seeking    attempts at the target; asks while in doubt connected; checking: third failure, or the end of AskFor
//	checking   one fresh resolve                           trying: answer; gave up: no answer
//	trying     one attempt at the answer                   connected; gave up
//	connected  none                                        seeking: Directed with news, Lost
//	gave up    none                                        seeking: Directed, Lost
//
// What an event changes while the client seeks:
//
//	event                     attempts                                    asks
//	Directed, newer epoch     new target, within Spread                   end
//	Lost                      after an answer, not before its Spread      at once, then every 100 to 250 ms
//	Resolved, newer epoch     new target, at once, not before its Spread  end
//	Resolved, other node      the same, for an answer without an epoch    end
//	the same again            next in 125 to 250 ms, then doubling        go on
//	Resolved, same node       the target may be tried                     next in 100 to 250 ms
//	Unresolved                the target may be tried                     next in 100 to 250 ms
//	Refused                   next in 125 to 250 ms, then doubling        at once, then every 100 to 250 ms
//	Failed                    next in 3 to 5 s, 3 in all                  go on if the client is in doubt
//
// A target that refuses the client does not delay news, and news of another node interrupts an attempt. Two
// attempts at a node that does not refuse the client start at least 3 s apart, and two asks start at least 100 ms
// apart. An answer without an epoch comes from a resolver that cannot reach its store. Two such resolvers may
// alternately name two different nodes. From the second change of target on, only a greater epoch ends the pause
// before an attempt or the attempt itself.
//
// The table shows the time from the loss of the connection until the client is connected again, as mean and
// maximum of 1,000 clients in virtual time. An attempt takes 30 ms, a resolve takes 2 ms, and the room has a new
// node 0.3 s after a kill -9.
//
//	                                 attempts alone    with asks
//	kill -9, directive lost          12.4 s 14.9 s     0.4 s 0.6 s
//	kill -9, failure unconfirmed for 5 s  12.4 s 14.9 s     5.1 s 5.3 s
//	drain with a directive            0.3 s  0.5 s     0.3 s 0.5 s
//	the target refuses for 1 s        4.3 s  5.5 s     1.4 s 2.0 s
//	kill -9, store away for 3 s      12.4 s 14.9 s     3.1 s 3.3 s
//
// If 1,000 clients lose a node at the same moment, they send 1,000 resolves at once. In the following second,
// they send 5,200 more, until the room has its new node. MinAsk and MaxAsk determine this rate.
package reconnect
