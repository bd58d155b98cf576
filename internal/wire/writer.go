package wire

import (
	"slices"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Writer appends values to a message. Its methods cannot fail.
type Writer struct {
	out buffer
	enc *msgpack.Encoder // writes to out
}

// buffer is the output of the encoder.
type buffer struct{ b []byte }

func (b *buffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *buffer) WriteByte(c byte) error {
	b.b = append(b.b, c)
	return nil
}

// writers caches writers for reuse, so that a message only allocates its own bytes.
var writers = sync.Pool{New: func() any { //nolint:gochecknoglobals // of no state
	w := new(Writer)
	w.enc = msgpack.NewEncoder(&w.out)
	return w
}}

// Append calls write, and appends its output to b.
func Append(b []byte, write func(w *Writer)) []byte {
	w := writers.Get().(*Writer)
	scratch := w.out.b
	w.out.b = b
	write(w)
	b = w.out.b
	w.out.b = scratch
	writers.Put(w)
	return b
}

// Size returns the size in bytes of the output of write.
func Size(write func(w *Writer)) int {
	w := writers.Get().(*Writer)
	w.out.b = w.out.b[:0]
	write(w)
	n := len(w.out.b)
	writers.Put(w)
	return n
}

// Array starts an array of n elements, which must be written next.
func (w *Writer) Array(n int) { _ = w.enc.EncodeArrayLen(n) }

// Fields is an array in which fields may be absent. Absent fields at its end are omitted, and other absent
// fields are encoded as nil.
type Fields struct {
	w             *Writer
	start         int // index of the first element
	n, last, size int // number of fields, number up to the last present field, and where that ends
}

// Fields starts an array. The caller must write least fields, then the optional fields, and then call End.
func (w *Writer) Fields(least int) Fields {
	w.out.b = append(w.out.b, 0) // placeholder for the length
	return Fields{w: w, start: len(w.out.b), n: least, last: least}
}

// Optional calls write to write a field if the field is present.
func (f *Fields) Optional(present bool, write func()) {
	if f.size == 0 {
		f.size = len(f.w.out.b)
	}
	f.n++
	if !present {
		f.w.Nil()
		return
	}
	write()
	f.last, f.size = f.n, len(f.w.out.b)
}

// End ends the array. The argument rest contains further fields that are already encoded.
func (f *Fields) End(rest []byte) {
	w := f.w
	if len(rest) > 0 {
		w.Raw(rest)
		f.last, f.size = f.n+Count(rest), len(w.out.b)
	}
	if f.size > 0 {
		w.out.b = w.out.b[:f.size]
	}
	if f.last > int(msgpcode.FixedArrayMask) {
		w.out.b = slices.Insert(w.out.b, f.start, byte(f.last>>8), byte(f.last))
		w.out.b[f.start-1] = msgpcode.Array16
		return
	}
	w.out.b[f.start-1] = msgpcode.FixedArrayLow | byte(f.last)
}

// Map starts a map with n keys. The caller must write each key followed by its value.
func (w *Writer) Map(n int) { _ = w.enc.EncodeMapLen(n) }

// Nil appends the value that represents an absent field.
func (w *Writer) Nil() { _ = w.enc.EncodeNil() }

// Uint appends an integer of 1 to MaxInteger bytes.
func (w *Writer) Uint(v uint64) { _ = w.enc.EncodeUint(v) }

// Int appends an integer of 1 to MaxInteger bytes.
func (w *Writer) Int(v int64) { _ = w.enc.EncodeInt(v) }

// Bool appends a boolean.
func (w *Writer) Bool(v bool) { _ = w.enc.EncodeBool(v) }

// Text appends a text, which should be UTF-8.
func (w *Writer) Text(s string) { _ = w.enc.EncodeString(s) }

// Bin starts a binary value of n bytes, which must be written next.
func (w *Writer) Bin(n int) { _ = w.enc.EncodeBytesLen(n) }

// Bytes appends a binary value.
func (w *Writer) Bytes(b []byte) {
	w.Bin(len(b))
	w.Raw(b)
}

// Handle appends the six bytes of a handle.
func (w *Writer) Handle(h uint64) {
	w.Bin(HandleSize)
	w.RawHandle(h)
}

// RawHandle appends a handle as part of a binary value that Bin started.
func (w *Writer) RawHandle(h uint64) {
	w.out.b = append(w.out.b, byte(h>>40), byte(h>>32), byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

// Raw appends b unchanged. The bytes of b are encoded values, or part of a binary value that Bin started.
func (w *Writer) Raw(b []byte) { w.out.b = append(w.out.b, b...) }

// Sizes and limits, in bytes.
const (
	MaxInteger = 9 // maximum size of an integer
	MaxHeader  = 5 // maximum size of the header of an array, a binary value or a text
	HandleSize = 6 // size of a handle inside a binary value
)

// BinSize returns the encoded size of a binary value with n bytes.
func BinSize(n int) int {
	switch {
	case n < 1<<8:
		return 2 + n
	case n < 1<<16:
		return 3 + n
	default:
		return MaxHeader + n
	}
}
