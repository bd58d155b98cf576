// Package wire reads and writes MessagePack, for all messages whose format roost defines.
//
//	b := wire.Append(nil, func(w *wire.Writer) {
//		f := w.Fields(1)
//		w.Text("node-a")
//		f.Optional(weight != 0, func() { w.Uint(weight) })
//		f.End(nil)
//	})
//	err := wire.Read(b, func(r *wire.Reader) {
//		r.Fields(1, func() {
//			name = r.Text(64)
//			r.Optional(func() { weight = r.Uint(100) })
//		})
//	})
//
// It wraps the part of github.com/vmihailenco/msgpack/v5 that is safe for hostile input. The rest of that
// library is not safe: it allocates what the header of a value claims, it recurses as deep as values are
// nested, and it accepts -1 and nil as unsigned integers. Here
//
//   - a length is compared with a bound and with the bytes that are left before anything is allocated,
//   - nothing recurses: [Reader.Skip] counts the values that are still to come,
//   - every number, text and list has a bound of its caller, and the type that it should have.
//
// So reading a message costs at most a small multiple of its size. A linter forbids the library everywhere
// else.
//
// A message is an array, and so is each of its parts that may get more fields later. A writer omits absent
// fields at the end. A reader reads the fields that it knows, and skips later ones, or keeps their bytes to
// relay them.
package wire
