package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Reader reads the values of a message. It stores the first problem. After a problem, all methods return zero
// values.
//
// A Reader does not read beyond the end of the current array. Values after the end are zero. Use Optional to
// read a field that a writer may omit.
type Reader struct {
	in      source
	dec     *msgpack.Decoder // reads from in
	left    int              // remaining elements of the array
	problem string
}

// source is the input of the decoder. The Reader also peeks at the input and takes bytes out of it.
type source struct {
	b  []byte
	at int
}

func (s *source) ReadByte() (byte, error) {
	if s.at >= len(s.b) {
		return 0, io.ErrUnexpectedEOF
	}
	s.at++
	return s.b[s.at-1], nil
}

func (s *source) UnreadByte() error {
	s.at--
	return nil
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.b[s.at:])
	if s.at += n; n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (s *source) rest() int { return len(s.b) - s.at }

// readers caches readers for reuse.
var readers = sync.Pool{New: func() any { //nolint:gochecknoglobals // of no state
	r := new(Reader)
	r.dec = msgpack.NewDecoder(&r.in)
	return r
}}

// Read calls body to read the only value of b, and returns the first problem as an error.
func Read(b []byte, body func(r *Reader)) error {
	r := readers.Get().(*Reader)
	r.in, r.left, r.problem = source{b: b}, 1, ""
	body(r)
	if r.problem == "" && r.in.rest() > 0 {
		r.Fail("bytes behind the end")
	}
	problem := r.problem
	r.in = source{}
	readers.Put(r)
	if problem != "" {
		return errors.New(problem)
	}
	return nil
}

// Fail records a problem, unless there already is one.
func (r *Reader) Fail(problem string) {
	if r.problem == "" {
		r.problem = problem
	}
	r.in.at, r.left = len(r.in.b), 0
}

// Failed reports whether there was a problem.
func (r *Reader) Failed() bool { return r.problem != "" }

const (
	cutShort   = "it is cut short"
	otherType  = "a value has another type"
	outOfRange = "a number is out of range"
)

// never is a code that MessagePack does not use.
const never = 0xc1

// next counts the next value and returns its code. It returns false at the end of the array.
func (r *Reader) next() (code byte, ok bool) {
	if r.left == 0 {
		return never, false
	}
	if r.in.at >= len(r.in.b) {
		r.Fail(cutShort)
		return never, false
	}
	r.left--
	return r.in.b[r.in.at], true
}

// Left returns the number of remaining elements of the array.
func (r *Reader) Left() int { return r.left }

// At returns how many bytes have been read.
func (r *Reader) At() int { return r.in.at }

// Fields reads an array that must have least or more fields. The function body reads the fields that it
// knows, and Fields skips the rest.
func (r *Reader) Fields(least int, body func()) {
	n := r.array()
	outer := r.left
	if r.left = n; n < least {
		r.Fail("an array is too short")
	}
	body()
	for r.left > 0 {
		r.Skip()
	}
	if r.problem == "" {
		r.left = outer
	}
}

// List reads an array of up to most elements, and calls body for each element.
func (r *Reader) List(most int, body func()) {
	r.Fields(0, func() {
		if r.left > most {
			r.Fail("an array is too long")
		}
		for r.left > 0 {
			body()
		}
	})
}

// Optional calls body to read the next field, unless the field is nil or beyond the end of the array.
func (r *Reader) Optional(body func()) {
	switch {
	case r.left > 0 && r.in.at < len(r.in.b) && r.in.b[r.in.at] == msgpcode.Nil:
		r.left--
		r.in.at++
	case r.left > 0:
		body()
	}
}

// array reads the length of an array. It checks that the array does not have more elements than there are
// remaining bytes.
func (r *Reader) array() int {
	code, ok := r.next()
	if !ok {
		return 0
	}
	if code&0xf0 != msgpcode.FixedArrayLow && code != msgpcode.Array16 && code != msgpcode.Array32 {
		r.Fail(otherType)
		return 0
	}
	n, err := r.dec.DecodeArrayLen()
	return r.length(n, r.in.rest(), err)
}

// length checks a length against a limit.
func (r *Reader) length(n, most int, err error) int {
	if err != nil || n < 0 || n > most { // on 32-bit systems, an int may be negative
		r.Fail(cutShort)
		return 0
	}
	return n
}

// Map reads the size n of a map with up to most keys. The caller must then read n keys and n values,
// alternating.
func (r *Reader) Map(most int) (n int) {
	code, ok := r.next()
	if !ok {
		return 0
	}
	if code&0xf0 != msgpcode.FixedMapLow && code != msgpcode.Map16 && code != msgpcode.Map32 {
		r.Fail(otherType)
		return 0
	}
	n, err := r.dec.DecodeMapLen()
	// Each element takes at least one byte. This is also true for elements after the map, and for elements of enclosing
	// maps.
	if n = r.length(n, max(0, r.in.rest()-r.left)/2, err); n > most {
		r.Fail("too many keys")
		return 0
	}
	r.left += 2 * n
	return n
}

// Uint reads an integer from 0 to limit.
func (r *Reader) Uint(limit uint64) (v uint64) {
	code, ok := r.next()
	var err error
	switch {
	case !ok:
		return 0
	case code <= msgpcode.PosFixedNumHigh:
		v = uint64(code)
		r.in.at++
	case msgpcode.Uint8 <= code && code <= msgpcode.Uint64:
		v, err = r.dec.DecodeUint64()
	case msgpcode.Int8 <= code && code <= msgpcode.Int64: // some encoders write all integers with a sign
		var signed int64
		if signed, err = r.dec.DecodeInt64(); signed < 0 {
			r.Fail(outOfRange)
			return 0
		}
		v = uint64(signed)
	default:
		r.Fail(otherType)
		return 0
	}
	return r.checked(v, v > limit, err)
}

func (r *Reader) checked(v uint64, outside bool, err error) uint64 {
	switch {
	case err != nil:
		r.Fail(cutShort)
	case outside:
		r.Fail(outOfRange)
	default:
		return v
	}
	return 0
}

// Int reads an integer from least to most.
func (r *Reader) Int(least, most int64) (v int64) {
	code, ok := r.next()
	var err error
	switch {
	case !ok:
		return 0
	case code <= msgpcode.PosFixedNumHigh, code >= msgpcode.NegFixedNumLow:
		v = int64(int8(code))
		r.in.at++
	case msgpcode.Uint8 <= code && code <= msgpcode.Int64:
		if v, err = r.dec.DecodeInt64(); code == msgpcode.Uint64 && v < 0 {
			r.Fail(outOfRange)
			return 0
		}
	default:
		r.Fail(otherType)
		return 0
	}
	return int64(r.checked(uint64(v), v < least || v > most, err))
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	code, ok := r.next()
	if !ok {
		return false
	}
	if code != msgpcode.False && code != msgpcode.True {
		r.Fail(otherType)
		return false
	}
	r.in.at++
	return code == msgpcode.True
}

// Bytes reads at most limit bytes. The result shares memory with the message.
func (r *Reader) Bytes(limit int) []byte {
	code, ok := r.next()
	if !ok {
		return nil
	}
	if code < msgpcode.Bin8 || code > msgpcode.Bin32 {
		r.Fail(otherType)
		return nil
	}
	return r.content(limit)
}

// Fixed reads exactly n bytes. The result shares memory with the message. It is nil after a problem.
func (r *Reader) Fixed(n int) []byte {
	if b := r.Bytes(n); len(b) == n {
		return b
	}
	r.Fail("bytes have another length")
	return nil
}

// Handle reads a handle.
func (r *Reader) Handle() uint64 { return HandleOf(r.Fixed(HandleSize)) }

// HandleOf returns the handle at the beginning of b, or 0 if b is nil.
func HandleOf(b []byte) uint64 {
	if b == nil {
		return 0
	}
	_ = b[HandleSize-1]
	return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5])
}

// Text reads a string of at most limit bytes. It does not have to be valid UTF-8.
func (r *Reader) Text(limit int) string {
	code, ok := r.next()
	if !ok {
		return ""
	}
	if code&0xe0 != msgpcode.FixedStrLow && (code < msgpcode.Str8 || code > msgpcode.Str32) {
		r.Fail(otherType)
		return ""
	}
	return string(r.content(limit))
}

// content reads the bytes of a binary or text value.
func (r *Reader) content(limit int) []byte {
	n, err := r.dec.DecodeBytesLen()
	if n = r.length(n, r.in.rest(), err); n > limit {
		r.Fail("bytes or a text are too long")
	}
	if r.problem != "" {
		return nil
	}
	end := r.in.at + n
	b := r.in.b[r.in.at:end:end]
	r.in.at = end
	return b
}

// Raw returns the encoded bytes of a value of any type. The result shares memory with the message.
func (r *Reader) Raw() []byte {
	from := r.in.at
	if r.Skip(); r.problem != "" {
		return nil
	}
	return r.in.b[from:r.in.at:r.in.at]
}

// Rest returns a copy of the encoded rest of the array. It fails if the rest has more than limit bytes.
func (r *Reader) Rest(limit int) []byte {
	if r.left == 0 {
		return nil
	}
	from := r.in.at
	for r.left > 0 {
		r.Skip()
	}
	if r.problem == "" && r.in.at-from > limit {
		r.Fail("the unknown fields are too long")
	}
	if r.problem != "" {
		return nil
	}
	return bytes.Clone(r.in.b[from:r.in.at])
}

// Skip skips a value of any type, including everything that it contains. It needs no memory, because it only
// counts the values that are still to come, and each value has at least one byte.
func (r *Reader) Skip() {
	if _, ok := r.next(); !ok {
		return
	}
	for values := uint64(1); values > 0; values-- {
		if values > uint64(r.in.rest()) {
			r.Fail(cutShort)
			return
		}
		code := r.in.b[r.in.at]
		r.in.at++
		content, inside := r.shape(code)
		if content > uint64(r.in.rest()) {
			r.Fail(cutShort)
			return
		}
		r.in.at += int(content)
		values += inside
	}
}

// shape returns what follows the code of a value: the number of content bytes, and then the number of nested
// values.
func (r *Reader) shape(code byte) (content, inside uint64) {
	switch {
	case code <= msgpcode.PosFixedNumHigh, code >= msgpcode.NegFixedNumLow:
		return 0, 0
	case code <= msgpcode.FixedMapHigh:
		return 0, 2 * uint64(code&msgpcode.FixedMapMask)
	case code <= msgpcode.FixedArrayHigh:
		return 0, uint64(code & msgpcode.FixedArrayMask)
	case code <= msgpcode.FixedStrHigh:
		return uint64(code & msgpcode.FixedStrMask), 0
	}
	return r.longShape(code)
}

// longShape is like shape, but for codes that are followed by a length.
func (r *Reader) longShape(code byte) (content, inside uint64) {
	switch code {
	case msgpcode.Nil, msgpcode.False, msgpcode.True:
		return 0, 0
	case msgpcode.Bin8, msgpcode.Bin16, msgpcode.Bin32:
		return r.number(1 << (code - msgpcode.Bin8)), 0
	case msgpcode.Ext8, msgpcode.Ext16, msgpcode.Ext32:
		return r.number(1<<(code-msgpcode.Ext8)) + 1, 0 // plus one byte for the type
	case msgpcode.Float, msgpcode.Double:
		return 4 << (code - msgpcode.Float), 0
	case msgpcode.Uint8, msgpcode.Uint16, msgpcode.Uint32, msgpcode.Uint64, msgpcode.Int8, msgpcode.Int16, msgpcode.Int32, msgpcode.Int64:
		return 1 << (code & 3), 0
	case msgpcode.FixExt1, msgpcode.FixExt2, msgpcode.FixExt4, msgpcode.FixExt8, msgpcode.FixExt16:
		return 1<<(code-msgpcode.FixExt1) + 1, 0
	case msgpcode.Str8, msgpcode.Str16, msgpcode.Str32:
		return r.number(1 << (code - msgpcode.Str8)), 0
	case msgpcode.Array16, msgpcode.Array32:
		return 0, r.number(2 << (code - msgpcode.Array16))
	case msgpcode.Map16, msgpcode.Map32:
		return 0, 2 * r.number(2<<(code-msgpcode.Map16))
	}
	r.Fail(otherType)
	return math.MaxUint64, 0
}

// number reads a big-endian integer of n bytes.
func (r *Reader) number(n int) (v uint64) {
	if n > r.in.rest() {
		r.Fail(cutShort)
		return math.MaxUint32
	}
	for _, b := range r.in.b[r.in.at : r.in.at+n] {
		v = v<<8 | uint64(b)
	}
	r.in.at += n
	return v
}

// Count returns the number of values in b, or -1 if b is truncated. This is the number of elements that [Writer.Raw]
// appends.
func Count(b []byte) (n int) {
	for r := (&Reader{in: source{b: b}, left: len(b)}); r.in.rest() > 0; n++ {
		if r.Skip(); r.problem != "" {
			return -1
		}
	}
	return n
}
