package simnet

// Stats counts what a [Network] carried since it was made. Bytes are payload,
// without headers.
type Stats struct {
	PacketsSent      uint64
	PacketsDelivered uint64 // handed to the receiver's channel
	Dropped          Drops
	InFlight         uint64 // delayed, or queued for a paused node
	BytesSent        uint64 // in packets sent

	Muted uint64 // packets that a paused or crashed node wrote; they were never sent

	StreamsOpened uint64
	StreamsOpen   uint64 // not broken, and not closed at both ends
	StreamBytes   uint64
}

// Drops counts the packets sent but not delivered, by reason.
type Drops struct {
	Loss     uint64 // by Config.Loss
	Cut      uint64 // at sending or on arrival
	Overflow uint64 // of the receiver's channel, or of a paused node's queue
	Dead     uint64 // nobody listening, or no longer there to read its queue
}

// Total is the sum over all reasons.
func (d Drops) Total() uint64 { return d.Loss + d.Cut + d.Overflow + d.Dead }

// Traffic counts what one [Transport] did, in the units of [Stats]. Sent
// includes what was lost on the way.
type Traffic struct {
	PacketsSent     uint64
	BytesSent       uint64
	PacketsReceived uint64
	BytesReceived   uint64
	StreamBytesSent uint64
}
