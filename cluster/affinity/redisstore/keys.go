package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// keys builds the names of keys. In a Redis Cluster, the hash tag of a partition keeps all keys of the
// partition in the same slot. The name of a room follows the hash tag, so the name cannot change the tag.
type keys struct {
	prefix    string
	clustered bool // Redis divides the keys by slot, so each partition has its own indexes
}

// pin returns the key of the string that contains a room's pin.
func (k keys) pin(p placement.Partition, room string) string { return k.of(p, ":r:", room) }

// rooms returns the key of the zset of an incarnation's rooms. In a Redis Cluster, the zset covers one
// partition. The members of the zset are rooms, and the function scores describes their scores.
func (k keys) rooms(p placement.Partition, at string) string {
	if k.clustered {
		return k.of(p, ":n:", at)
	}
	return k.prefix + "n:" + at
}

// incarnations returns the key of the zset of the incarnations that have rooms. In a Redis Cluster, the zset
// covers one partition. The score of an incarnation is an expiry that is not earlier than the expiry of any
// of its pins.
func (k keys) incarnations(p placement.Partition) string {
	if k.clustered {
		return k.of(p, ":l", "")
	}
	return k.prefix + "l"
}

// units returns the key of the zset of the units of new rooms that were counted for an incarnation.
func (k keys) units(at string) string { return k.prefix + "{n:" + at + "}" }

// unitsFor returns the key of the units that were recently counted for a room.
func (k keys) unitsFor(at, room string) string { return k.units(at) + ":" + room }

// heartbeats returns the key of the zset of live incarnations. The score is the expiry of the heartbeat.
func (k keys) heartbeats() string { return k.prefix + "lives" }

// reservations returns the key of the zset of reservations. The score of a reservation is its end in ms.
func (k keys) reservations() string { return k.prefix + "ahead" }

// cluster returns three keys in the same slot: the string with the name of the cluster that uses these keys,
// the zset of the incarnations with that name, and a key that is never written. The hash tag of these keys is
// the word "cluster".
func (k keys) cluster() []string {
	tag := k.prefix + "{cluster}:"
	return []string{tag + "name", tag + "named", tag + "none"}
}

// of returns a key that belongs to a partition.
func (k keys) of(p placement.Partition, kind, name string) string {
	b := make([]byte, 0, 128)
	b = append(append(b, k.prefix...), '{')
	b = append(strconv.AppendUint(b, uint64(p), 10), '}')
	b = append(append(b, kind...), name...)
	return string(b)
}

// scores returns the range of the scores of a partition's rooms in a zset of rooms. The score of a room is
// partition * 2^32 + the expiry of its pin in seconds.
func scores(p placement.Partition) (from, to string) {
	const bits = 32
	return strconv.FormatUint(uint64(p)<<bits, 10), strconv.FormatUint(uint64(p)<<bits+1<<bits-1, 10)
}

func checkPrefix(k string) error {
	const most = 64
	if len(k) > most || strings.ContainsFunc(k, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '{' || r == '}'
	}) {
		return fmt.Errorf("redisstore: prefix %.80q: it must be up to %d characters of printable ASCII without braces and spaces",
			k, most)
	}
	return nil
}

// textOf returns an incarnation in the format used in keys and values. For the zero incarnation, textOf
// returns "".
func textOf(l lease.Incarnation) string {
	if l == (lease.Incarnation{}) {
		return ""
	}
	return string(l.Node) + "|" + strconv.FormatUint(l.Number, 10)
}

func checkIncarnation(l lease.Incarnation) error {
	if l == (lease.Incarnation{}) {
		return nil
	}
	return l.Node.Validate()
}

var errIncarnation = errors.New("it does not have the form node|incarnation")

func parseIncarnation(text string) (lease.Incarnation, error) {
	node, number, _ := strings.Cut(text, "|")
	incarnation, err := strconv.ParseUint(number, 10, 64)
	if err != nil || lease.NodeID(node).Validate() != nil {
		return lease.Incarnation{}, errIncarnation
	}
	return lease.Incarnation{Node: lease.NodeID(node), Number: incarnation}, nil
}

// maxEpoch is the limit up to which a double represents every integer exactly. Lua stores numbers as doubles.
const maxEpoch = 1 << 53

const maxNeeds = 8 << 10 // bytes

var (
	errPin         = errors.New("it is not node|incarnation|epoch|size|needs")
	errReservation = errors.New("it is not end|needs|room")
)

// parsePin parses the value of a pin. The id of a node cannot contain |, but the needs can.
func parsePin(text string) (pinstore.Pin, error) {
	const fields = 5
	f := strings.SplitN(text, "|", fields)
	if len(f) != fields {
		return pinstore.Pin{}, errPin
	}
	at, err := parseIncarnation(f[0] + "|" + f[1])
	epoch, epochErr := strconv.ParseUint(f[2], 10, 64)
	size, sizeErr := strconv.Atoi(f[3])
	if err != nil || epochErr != nil || sizeErr != nil || epoch >= maxEpoch || size < 0 || len(f[4]) > maxNeeds {
		return pinstore.Pin{}, errPin
	}
	return pinstore.Pin{Incarnation: at, Epoch: epoch, Size: size, Needs: f[4]}, nil
}
