package simnet

// Stats counts the traffic of a [Network] since it was created. Bytes are payload,
// without headers.
type Stats struct {
	PacketsSent      uint64
	PacketsDelivered uint64 // in the receiver's channel
	Dropped          Drops
	InFlight         uint64 // delayed, or queued for a paused node
	BytesSent        uint64 // in packets sent

	Muted uint64 // packets written by a paused or crashed node; they were never sent

	StreamsOpened uint64
	StreamsOpen   uint64 // not broken, and not closed at both ends
	StreamBytes   uint64
}

// Drops counts the packets sent but not delivered, by reason.
type Drops struct {
	Loss       uint64 // by Config.Loss
	Cut        uint64 // at sending or on arrival
	Overflow   uint64 // of the receiver's channel, or of a paused node's queue
	NoListener uint64 // no listener, or the receiver ended before it read its queue
}

// Total is the sum over all reasons.
func (d Drops) Total() uint64 { return d.Loss + d.Cut + d.Overflow + d.NoListener }

// Traffic counts the traffic of one [Transport], in the units of [Stats]. Sent includes
// lost packets.
type Traffic struct {
	PacketsSent     uint64
	BytesSent       uint64
	PacketsReceived uint64
	BytesReceived   uint64
	StreamBytesSent uint64
}
