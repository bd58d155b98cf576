// Package tour is the demo, which checks roost's promises on real processes.
//
// It starts a few agents on loopback, each in its own process with the default timings, and walks through the
// life of a fleet: nodes start, a node joins, one is killed with kill -9, and one drains and leaves. After
// each step it asks every agent for its view, via the public HTTP API, and checks:
//
//  1. Every agent holds the same table and sees the same members.
//  2. Every partition is owned by exactly one agent, according to what each agent reports about itself.
//  3. Every room resolves to the same owner at every agent.
//  4. Only the necessary partitions moved: to the node that joined, or from the node that left.
//  5. About as many partitions moved as expected, and to all other nodes.
//
// People join some of the rooms. The first join pins the room, in a store that the agents share: the user's
// Redis, or the tour's stand-in. For these rooms it checks:
//
//  6. Every agent lists the same pins, exactly one for each of these rooms, and none of a
//     node that is gone.
//  7. Every agent sends people to the pin of their room, and the agent there is the only
//     host of the room.
//  8. A room that is too big for its owner according to the hash is pinned to another node.
//  9. Only pins of a node that left moved, and all of them.
//
// The tour lists the pins before it resolves a room, because resolving repairs pins.
//
// A check compares answers of agents. The tour itself does not compute placement, except for the partition of
// a room. A failed check is printed as BROKEN with the first contradiction.
//
// steps.go has what happens, checks.go what is checked, and print.go how it is shown. ask.go has the
// questions to the agents, fleet.go their processes and the wait until they agree, rooms.go the rooms with
// people, and stay.go and front.go the dashboard with its buttons, which comes after the tour.
//
// No agent outlives the tour, because each reads a pipe that the tour holds open, and exits when the pipe
// closes. A paused agent only notices when it continues. The tour resumes it at its end. After kill -9 of the
// tour, the kernel does, unless the process that inherits the agent is in the same session, such as a shell
// that is the first process of a container.
package tour
