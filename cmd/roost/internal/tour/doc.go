// Package tour runs the demo, which checks roost's guarantees on real processes.
//
// The tour starts a few agents on loopback, each in its own process with the default timings. The tour then
// walks through the life of a cluster: nodes start, a node joins, a node is killed with kill -9, and a node
// drains and leaves. After each step, the tour asks every agent for its view through the public HTTP API and
// checks that:
//
//  1. Every agent has the same table and sees the same members.
//  2. Exactly one agent reports each partition as its own.
//  3. All agents resolve a room to the same owner.
//  4. Only the necessary partitions moved: to the node that joined or from the node that left.
//  5. About the expected number of partitions moved, and if a node was killed, its partitions spread over all
//     other nodes.
//
// Simulated people join some of the rooms. The first join pins the room in a store that the agents share: the
// user's Redis, or a stand-in that the tour runs. For the pinned rooms, the tour checks that:
//
//  6. Every agent lists the same pins: exactly one for each room, and none to a node that is gone.
//  7. Every agent sends people to the node that their room is pinned to, and only that node's agent hosts the
//     room.
//  8. A room that is too big for the node chosen by the hash is pinned to another node.
//  9. When a node is killed or leaves, all of its pins move and no others.
//
// The tour lists the pins before it resolves rooms, because resolving a room repairs its pin.
//
// The checks compare the answers of the agents. The only placement that the tour computes itself is the
// partition of a room. A failed check is printed as BROKEN, with the first contradiction.
//
// The steps are in steps.go, the checks in checks.go, and the output in print.go. ask.go queries the agents,
// fleet.go runs their processes and waits until they agree, and rooms.go chooses the rooms that people join.
// stay.go and front.go serve the dashboard, whose buttons work after the last step.
//
// No agent outlives the tour, because each agent reads from a pipe that the tour holds open, and exits when
// the pipe closes. A paused agent notices the closed pipe only after it is resumed. The tour resumes its
// paused agents before it exits. If the tour is killed with kill -9, the kernel resumes paused agents. The
// exception is an agent that is inherited by a process of the same session, such as a shell that runs as PID
// 1 of a container.
package tour
