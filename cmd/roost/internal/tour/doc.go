// Package tour is the demo that proves roost on real processes.
//
// It starts a few agents on loopback, each a process of its own with the default
// timings, and walks through the life of a fleet: nodes start, a node joins, one is
// killed with kill -9, one drains and leaves. After each step it asks every agent for
// its view, through the public HTTP API, and checks:
//
//  1. Every agent holds the same table and sees the same members.
//  2. Every partition is owned by exactly one agent, by each agent's own account.
//  3. Every room resolves to the same owner, by every agent.
//  4. Only the necessary partitions moved: to the node that joined, from the node that
//     left.
//  5. About as many moved as expected, and to all of the others.
//
// People join some of the rooms. The first join pins the room, in a store that the
// agents share: a Redis of the user's, or the tour's stand-in. Of those rooms it checks:
//
//  6. Every agent lists the same pins, exactly one for each of these rooms, and none of a
//     node that is gone.
//  7. Every agent sends people to the pin of their room, and the agent there is the only
//     host of the room.
//  8. A room that is too big for its owner by the hash is pinned to another node.
//  9. The only pins that moved are the pins of a node that left, and all of them moved.
//
// The tour lists the pins before it resolves a room, because resolving repairs pins.
//
// A check compares answers of agents. By itself the tour computes no placement but the
// partition of a room. A check that fails is printed as BROKEN with the first contradiction.
//
// Read steps.go for what happens, checks.go for what is checked, and print.go for how it is shown. ask.go has
// the questions to the agents, fleet.go their processes and the wait until they agree, rooms.go the rooms with
// people, and stay.go and front.go what comes after the tour: the dashboard with its buttons.
//
// No agent outlives the tour: each reads a pipe that the tour holds open, and exits when
// the pipe closes. A paused agent reads only when it continues. The tour sees to that at its
// end, and the kernel does after kill -9 of the tour, unless the process that inherits the
// agent is of the same session, as a shell that is the first process of a container.
package tour
