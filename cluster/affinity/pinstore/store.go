// Package pinstore defines the store in which the resolvers of package affinity keep the pins of rooms.
//
// A [Pin] says where a room lives. An [Op] changes it with compare-and-set, and a [Store] performs ops.
// [Memory] is a Store for a single process. Package redisstore has a Store for a fleet, and package
// affinitytest tests any implementation.
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

// Pin says where a room lives. The zero Pin means no pin.
type Pin struct {
	lease.Incarnation
	// Epoch grows whenever the room gets another incarnation, and with each hosting after the store has lost
	// data, unless the store's clock goes back. It is below 2^53, so that every language can represent it.
	Epoch uint64
	Size  int // participants at the last refresh, up to MaxSize
	// Needs is the rest of the room's Demand at the last refresh, as a URL query of at most 8 KiB. It is
	// empty if Size is the whole demand. A Store keeps it unchanged.
	Needs string
}

// String returns the incarnation, the epoch and the size.
func (p Pin) String() string {
	return fmt.Sprintf("%s epoch %d size %d", p.Incarnation, p.Epoch, p.Size)
}

// Released reports whether p marks a room that another node has released. The mark has a node but no
// incarnation, and remains until the host has seen it.
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

	// If is the pin that must exist for the op to take effect. With the zero Pin, no pin may exist. Size and
	// Needs are not compared. With Epoch 0, any pin of the incarnation matches.
	If Pin

	// Set is the new pin. The store picks its epoch. If the incarnation stays the same and Set's epoch is not
	// greater, the epoch stays the same. Otherwise it becomes greater than the present epoch, those of If and
	// Set, and all earlier epochs of the room that the store knows of.
	Set Pin

	// Limit, if it is not 0, limits the sum of Units that all users set on Set's incarnation within the last
	// Window. An op that would exceed it has no effect, and its result is Full. Units of other ops for the
	// same room within some seconds don't count. Use Limit only for single ops. Before a store has undone an
	// op that is Full, other users may read its pin.
	Limit, Units int64
	Window       time.Duration // at most a minute

	// TTL is how long the new pin lasts without a refresh, in whole milliseconds. At least 1 ms.
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

	// Full says that Op.Limit forbade the op. Counted is the sum of the units that counted.
	Full    bool
	Counted int64

	// Fresh is how long the caller may use Pin without another query, unless the store notifies of a change.
	// With 0, query each time.
	Fresh time.Duration

	// Err is set if the op failed. The op may still take effect later.
	Err error
}

// Entry is a room with its pin.
type Entry struct {
	Partition placement.Partition
	Room      string
	Pin       Pin
}

// Store keeps the pins where every instance can read them: [Memory] for the instances of one process, package
// redisstore for a fleet. Package affinitytest has a conformance suite for implementations. All methods must
// be safe for concurrent use, and return when ctx ends at the latest.
type Store interface {
	// Swap performs each op atomically and independently of the others, and returns their results in order.
	// The ops must have distinct rooms. A single op takes one round trip.
	Swap(ctx context.Context, ops ...Op) []Result

	// Index returns at most limit rooms in the given partitions that are pinned to an incarnation for which
	// want returns true, in any order. With an error, it also returns the rooms that it found. Its cost grows
	// with the partitions and the result, not with the size of the store.
	Index(ctx context.Context, partitions []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]Entry, error)

	// Heartbeat records that self is alive for ttl from now, by the store's clock; a ttl
	// of 0 removes the record, and a zero self records nothing. It returns which of the
	// incarnations in ask are alive.
	Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error)

	// Agree records the settings of self for ttl from now, by the store's clock. A ttl of 0 removes them, and
	// the last user to do so frees the settings. A store may add its own settings, such as the prefix of its
	// keys. If a store compares the name of the cluster under the prefix, it calls the setting "cluster". If
	// other users have other values for some settings, Agree records nothing and returns the differences,
	// because the users that came first win.
	Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, s Settings) (Agreed, error)

	// Notify registers changed. The store calls it with a room after another user has changed the room's pin,
	// if this user has ever received the pin. It calls it with "" when it may have missed changes or lost
	// data, for example after a lost connection. The store may also notify of the user's own changes. changed
	// must not block and must not call the store. Each user must call Notify once, before all other methods,
	// and stop when it ends, because until then the store holds a reference to it. A call of changed may
	// still be in progress when stop returns.
	Notify(changed func(room string)) (stop func())
}
