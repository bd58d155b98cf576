// Package tour is the demo that proves roost on real processes.
//
// It starts a few agents on loopback, each a process of its own with the default
// timings, and walks through what happens to a fleet: nodes start, a node joins,
// one is killed with kill -9, one drains and leaves. After each step it asks
// every agent what it believes, through the same HTTP API that anybody uses, and
// checks:
//
//  1. Every agent holds the same table and sees the same members.
//  2. Every partition is owned by exactly one agent, by what each says of itself.
//  3. Every room resolves to the same owner, whichever agent is asked.
//  4. Nothing moved but what had to: to the one that joined, from the one that
//     went.
//  5. About as much moved as was to be expected, and to all of the others.
//
// People come into some of the rooms, which are pinned then, in a store that the
// agents share: the Redis that the tour was told of, or one that it stands in for.
// Of those rooms it checks:
//
//  6. Every agent lists the same pins, one for each of the rooms and no more, and
//     none of a node that is gone.
//  7. Whoever asks for a room is sent to its pin, whichever agent is asked, and the
//     agent there is the only one that hosts it.
//  8. A room that is too big for its owner by the hash is pinned to another node.
//  9. No pin moved but those of a node that went for good, and all of those.
//
// The pins are listed before anybody asks for a room, because asking mends them.
//
// The agents are asked nothing that the tour has computed itself, and a check
// that fails is printed as BROKEN with the first thing that contradicts it.
//
// No agent outlives the tour, however the tour ends: each one reads a pipe that
// the tour holds open, and exits when that closes.
package tour
