package gossip

import (
	"io"

	"github.com/roost-cluster/roost/internal/wire"
)

// What the two sides of a hello or of a handshake say is in frames, so that a reader knows where it ends, and later
// releases can say more: a frame is up to 255 bytes of MessagePack (typeFrame and their number come first), which are an array.
const (
	typeFrame = 0xc4
	maxFrame  = 255
)

// appendFrame appends a frame with the array that write writes.
func appendFrame(b []byte, write func(w *wire.Writer)) []byte {
	array := wire.Append(nil, write)
	return wire.Append(b, func(w *wire.Writer) { w.Bytes(array) })
}

// readFrame has read read the array in a frame. It fails with malformed if the other side sends something else, and reads no
// more than the frame.
func readFrame(r io.Reader, malformed error, read func(r *wire.Reader)) error {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if head[0] != typeFrame {
		return malformed
	}
	array := make([]byte, head[1])
	if _, err := io.ReadFull(r, array); err != nil {
		return err
	}
	if wire.Read(array, read) != nil {
		return malformed
	}
	return nil
}
