// Package presence records which participants are in which room. Nodes that share a [Store] can query every
// room without calling each other.
//
//	tracker, err := presence.Start(store, partitions, presence.SFU())
//	…
//	defer tracker.Close()
//	err = tracker.Join(ctx, "standup", "alice/7f3a")
//	…
//	members, err := tracker.Members(ctx, "standup") // on any node
//
// A participant is a connection, not a person. A user with two connections is in the room twice and remains
// there until both connections have left. By convention, a participant's name is "user/connection", such as
// "alice/7f3a". [Member.User] returns the user. Another node must not reuse the name of a connection while
// the old connection may still be present.
//
// # Guarantees
//
//  1. One goroutine renews all participants of a node, spread over Config.Interval.
//  2. The participants of a crashed node leave their rooms after Interval + Grace. A participant that joins
//     again on another node is counted once.
//  3. After the store loses its data, all participants are present again within Interval.
//  4. Join and Leave return within half of Config.Grace. If a change fails, the tracker repeats it until the
//     store has accepted it.
package presence
