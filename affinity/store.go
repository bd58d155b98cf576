package affinity

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Pin says where a room lives. The zero Pin stands for none.
type Pin struct {
	lease.Incarnation
	// Epoch grows whenever the room gets another life, also across a loss of the
	// store's data, as far as the store's clock does not go back. It is below
	// 2^53, so that every language can hold it.
	Epoch uint64
	Size  int // participants that the room was last said to have
}

// String returns the life, the epoch and the size.
func (p Pin) String() string {
	return fmt.Sprintf("%s epoch %d size %d", p.Incarnation, p.Epoch, p.Size)
}

// released marks the pin of a room that was released away from its host: it names
// no life of the host's node any more, and stands until the host has seen it.
func (p Pin) released() bool { return p.Node != "" && p.Number == 0 }

// Op is a compare-and-set of one room's pin:
//
//	read      If none      Set none
//	claim     If none      Set a life    what stands, else the new pin
//	replace   If a pin     Set a life
//	refresh   If a pin     Set its life  keeps the epoch; sets Size and TTL
//	release   If a pin     Set none      deletes the pin
type Op struct {
	Partition placement.Partition // of the room
	Room      string              // valid, see CheckName

	// If is the pin that has to stand for the op to take effect; the zero Pin
	// means that none may. Size is not compared. With Epoch 0, any pin of that
	// life will do.
	If Pin

	// Set is the pin to make. The store picks its epoch: If's, when the life
	// stays the same, else one that is greater than If's, Set's and any that it
	// gave to the room before.
	Set Pin

	// TTL is how long the pin that is set lasts unless refreshed. Whole
	// milliseconds, at least one.
	TTL time.Duration
}

// reads reports whether the op changes nothing.
func (op *Op) reads() bool {
	return op.Set.Incarnation == (lease.Incarnation{}) && op.If.Incarnation == (lease.Incarnation{})
}

// Result tells what came of an Op.
type Result struct {
	Pin  Pin  // what stands now; zero if none does
	Done bool // the op took effect: If stood, or for a claim, there was no pin

	// Fresh is how long the caller may rely on Pin without asking again, unless
	// the store notifies it of a change. 0: ask each time.
	Fresh time.Duration

	// Err is set if the op failed or may have: what was asked for may yet happen.
	Err error
}

// Entry is a room that is pinned.
type Entry struct {
	Partition placement.Partition
	Room      string
	Pin       Pin
}

// Store keeps the pins where every instance can read them: [Memory] for the
// instances of one process, package redisstore for a fleet. Package affinitytest
// has a conformance suite for implementers. All methods may be called from any
// goroutine, and return when ctx ends at the latest.
type Store interface {
	// Swap performs each op atomically, and independently of the others, and
	// returns their results in order. A single op takes one round trip. Rooms of
	// ops are distinct.
	Swap(ctx context.Context, ops ...Op) []Result

	// Index returns the rooms in the given partitions whose pins name a life that
	// want selects, at most limit of them, in any order. With an error it returns
	// what it found nevertheless. It costs in proportion to the partitions and to
	// what it returns, not to what the store holds.
	Index(ctx context.Context, partitions []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]Entry, error)

	// Sign tells the store that self is alive, for ttl from now (0: it says
	// farewell), and returns which of the lives in ask have signed and not run
	// out. All time is the store's. The zero lease.Incarnation signs for nobody: it only asks.
	Sign(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error)

	// Notify makes the store call changed with a room whose pin somebody else
	// has changed, if the caller was ever told of it, or with "" when it cannot
	// tell which have: the caller's connection was lost, say. It may tell of the
	// caller's own changes, too. changed must not block, and does not call the
	// store. Notify is called once by each user, before anything else.
	Notify(changed func(room string))
}
