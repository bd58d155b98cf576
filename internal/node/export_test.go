package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Limits that tests exceed, and times for which they wait.
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

// Leases returns what this node knows of leases: tests make messages with it.
func (n *Node) Leases() *lease.Set { return n.set }

// Started returns the time from which [OwnLease.Holds] counts.
func (n *Node) Started() time.Time { return n.started }

// Waiting returns how many senders have to answer a challenge, and how many bytes their messages have that wait for it.
func (n *Node) Waiting() (senders, size int) { return len(n.waiting.senders), n.waiting.bytes }

// SeedExchange returns an exchange with a seed.
func SeedExchange() Exchange { return Exchange{target: &target{kind: seedAddr}} }
