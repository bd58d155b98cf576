package gossip

import (
	"io"

	"github.com/roost-cluster/roost/internal/wire"
)

// A frame is a MessagePack array of up to 255 bytes. It starts with typeFrame and the number of bytes, so
// that a reader knows where the array ends, and later releases can append fields.
const (
	typeFrame = 0xc4
	maxFrame  = 255
)

// appendFrame appends a frame with n fields.
func appendFrame(b []byte, n int, fields func(w *wire.Writer)) []byte {
	array := wire.Append(nil, func(w *wire.Writer) {
		w.Array(n)
		fields(w)
	})
	return wire.Append(b, func(w *wire.Writer) { w.Bytes(array) })
}

// readFrame reads a frame with at least the given number of fields, and does not read beyond the end of the
// frame. It returns the error malformed if the other side sends something else.
func readFrame(r io.Reader, least int, malformed error, fields func(r *wire.Reader)) error {
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
	if wire.Read(array, func(r *wire.Reader) { r.Fields(least, func() { fields(r) }) }) != nil {
		return malformed
	}
	return nil
}
