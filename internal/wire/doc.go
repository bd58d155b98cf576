// Package wire reads and writes MessagePack, for all messages that roost has a format for itself.
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
// It is the part of github.com/vmihailenco/msgpack/v5 that is safe on hostile input. The
// rest of that library is not: it allocates what the header of a value claims, it recurses as
// deep as values are nested, and it takes -1 and nil for unsigned integers. Here
//
//   - a length is compared with a bound and with the bytes that are left before anything is allocated,
//   - nothing recurses: [Reader.Skip] counts the values that are still to come,
//   - every number, text and list has a bound of its caller, and the type that it should have.
//
// So a message costs its reader no more than a small multiple of its own size. A linter forbids
// the library everywhere else.
//
// A message is an array, and so is each part of it that may get further fields. A writer leaves out
// fields at the end that are absent. A reader takes the fields that it knows, and skips
// the ones behind them, or keeps their bytes to pass them on.
package wire
