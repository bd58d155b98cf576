package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// These are limits that tests exceed, and times that tests wait for.
const (
	ConfirmTime       = confirmTime
	MaxReminded       = maxReminded
	MaxStreamed       = maxStreamed
	StreamedFor       = streamedFor
	MaxWaiting        = maxWaiting
	MaxWaitingSenders = maxWaitingSenders
	LostAtOnce        = lostAtOnce
	LookupTime        = lookupTime
	HangsAfter        = hangsAfter
	FailuresInARow    = failuresInARow
	SuccessesInARow   = successesInARow
	ExtraStamp        = extraStamp
	ExtraAssignment   = extraAssignment
)

// Leases returns the node's set of leases. Tests compose messages with it.
func (n *Node) Leases() *lease.Set { return n.set }

// Started returns the time from which [OwnLease.Holds] counts.
func (n *Node) Started() time.Time { return n.started }

// Waiting returns how many senders still have to answer a challenge, and the total size of their waiting messages in
// bytes.
func (n *Node) Waiting() (senders, size int) { return len(n.waiting.senders), n.waiting.bytes }

// SeedExchange returns an exchange with a seed.
func SeedExchange() Exchange { return Exchange{target: &target{kind: seedAddr}} }
