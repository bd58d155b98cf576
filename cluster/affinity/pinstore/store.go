// Package pinstore defines the store in which the resolvers of package affinity keep the pins of rooms. For a
// single process, use [Memory]. For a fleet, use package redisstore. To test your own implementation, use
// package affinitytest.
//
// A [Pin] records where a room lives. An [Op] changes a pin with compare-and-set, and a [Store] performs ops.
package pinstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// ErrStore reports that the store did not answer. Every error of a Store is an ErrStore.
var ErrStore = errors.New("affinity: the store does not answer")

// MaxSize is the maximum number of participants of a room.
const MaxSize = 1_000_000

// Pin records where a room lives. The zero Pin means that the room has no pin.
type Pin struct {
	lease.Incarnation
	// Epoch increases whenever the room moves to another incarnation. After the store has lost data, the
	// epoch also increases with each hosting unless the store's clock goes back. An epoch is less than 2^53,
	// so that every language can represent it.
	Epoch uint64
	Size  int // participants at the last refresh, up to MaxSize
	// Needs is the part of the room's Demand other than Size, as of the last refresh. Needs is a URL query of
	// at most 8 KiB. It is empty if Size is the whole demand. A Store must keep Needs unchanged.
	Needs string
}

// String returns the incarnation, the epoch and the size.
func (p Pin) String() string {
	return fmt.Sprintf("%s epoch %d size %d", p.Incarnation, p.Epoch, p.Size)
}

// Released reports whether p is the mark of a room that another node has released. The mark has a node but no
// incarnation. The mark remains until the host has seen it.
func (p Pin) Released() bool { return p.Node != "" && p.Number == 0 }

// Op is a compare-and-set of one room's pin:
//
//	read      If none      Set none
//	claim     If none      Set an incarnation    returns the existing pin, or the new one
//	replace   If a pin     Set an incarnation
//	refresh   If a pin     Set its incarnation   keeps the epoch; sets Size, Needs and TTL
//	renew     If a pin     Set its incarnation   with a greater epoch
//	release   If a pin     Set none              deletes the pin
type Op struct {
	Partition placement.Partition // of the room
	Room      string              // valid, see affinity.CheckName

	// If is the pin that must exist for the op to take effect. If the field is the zero Pin, the room must
	// not have a pin. Size and Needs are not compared. With Epoch 0, any pin of the incarnation matches.
	If Pin

	// Set is the new pin. The store picks the epoch of the new pin. The epoch remains the same if the
	// incarnation remains the same and Set's epoch is not greater. Otherwise, the store picks an epoch
	// greater than the current epoch, the epochs of If and Set, and all earlier epochs of the room that it
	// knows.
	Set Pin

	// Limit, if it is not 0, limits the sum of the Units of all ops on Set's incarnation within the last
	// Window. The sum includes the ops of all users. An op that would exceed the limit has no effect, and its
	// result is Full. Units of other ops for the same room within a few seconds are not counted. Use Limit
	// only for single ops. If a claim is Full, other users may briefly read its pin before the store has undone
	// the claim. If a replacement is Full, the pin was never changed.
	Limit, Units int64
	Window       time.Duration // at most a minute

	// TTL is how long the new pin lasts without a refresh, in whole milliseconds. The minimum is 1 ms.
	TTL time.Duration
}

// reads reports whether the op changes nothing.
func (op *Op) reads() bool {
	return op.Set.Incarnation == (lease.Incarnation{}) && op.If.Incarnation == (lease.Incarnation{})
}

// Result is the outcome of an Op.
type Result struct {
	Pin  Pin  // pin after the op; zero if there is none
	Done bool // the op took effect: If matched, or a claim found no pin

	// Full reports that Op.Limit prevented the op. Counted is the sum of the units that were counted toward
	// the limit.
	Full    bool
	Counted int64

	// Fresh is how long the caller may use Pin without another query, unless the store notifies the caller of
	// a change. If Fresh is 0, the caller must query the store every time.
	Fresh time.Duration

	// Err is not nil if the op failed. A failed op may still take effect later.
	Err error
}

// Entry is a room and its pin.
type Entry struct {
	Partition placement.Partition
	Room      string
	Pin       Pin
}

// Reservation keeps units of load free for a room until a time.
type Reservation struct {
	Room  string    // valid, see affinity.CheckName
	Needs string    // what is reserved, in the form of Pin.Needs
	Until time.Time // a whole number of milliseconds
}

// Store keeps the pins where every instance can read them. [Memory] is a Store for the instances of one
// process, and package redisstore provides a Store for a fleet. Package affinitytest has a conformance suite
// for implementations. All methods must be safe for concurrent use and must return no later than when ctx
// ends.
type Store interface {
	// Swap performs each op atomically and independently of the others. Swap returns the results in the order
	// of the ops. The ops must be for distinct rooms. A single op takes one round trip.
	Swap(ctx context.Context, ops ...Op) []Result

	// Index returns at most limit rooms in the given partitions that are pinned to an incarnation for which
	// want returns true, in any order. If Index returns an error, it also returns the rooms that it found.
	// The cost grows with the number of partitions and the size of the result, but not with the size of the
	// store.
	Index(ctx context.Context, partitions []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]Entry, error)

	// Heartbeat records that self is alive for ttl from now, by the store's clock. With a ttl of 0, Heartbeat
	// removes the record. With a zero self, Heartbeat records nothing. Heartbeat returns which of the
	// incarnations in ask are alive.
	Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error)

	// Agree records the settings of self for ttl from now, by the store's clock. With a ttl of 0, Agree
	// removes the settings. When the last user removes its settings, the store accepts any settings again.
	//
	// If other users have different values for some settings, Agree records nothing and returns the
	// differences, because the users that came first win. A store may add its own settings, such as the
	// prefix of its keys. If a store also compares the name of the cluster that uses the prefix, it calls
	// that setting "cluster".
	Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, s Settings) (Agreed, error)

	// Reserve records a reservation, which replaces the earlier reservation of the room. With a zero Until,
	// Reserve removes the reservation of the room. If several users reserve the same room at once, one of
	// their reservations remains.
	Reserve(ctx context.Context, r Reservation) error

	// Reservations returns the reservations that end later than now, in any order, with at most one for each
	// room. The store may forget a reservation once it has ended.
	Reservations(ctx context.Context) ([]Reservation, error)

	// Notify registers the function changed. After another user changes the pin of a room, the store calls
	// changed with the room if this user has ever received that pin. The store calls changed with "" when it
	// may have missed changes or lost data, for example after a lost connection. The store may also notify a
	// user of the user's own changes.
	//
	// changed must not block and must not call the store. Each user must call Notify once, before all other
	// methods, and must call stop when it ends. Until then, the store keeps a reference to the user. A call
	// of changed may still be in progress when stop returns.
	Notify(changed func(room string)) (stop func())
}
