// Package wire reads and writes MessagePack. roost uses it for all messages whose format it defines.
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
// Package wire wraps the part of github.com/vmihailenco/msgpack/v5 that is safe for hostile input. The rest
// of that library is not safe. The library allocates as much memory as the header of a value claims, it
// recurses as deep as values are nested, and it accepts -1 and nil as unsigned integers. This package has the
// following protections:
//
//   - Before it allocates anything, it compares each length with a limit and with the number of remaining
//     bytes.
//   - It does not recurse. [Reader.Skip] only counts the values that are still to come.
//   - For every number, text and list, it checks the type and a limit that the caller specifies.
//
// So reading a message costs at most a small multiple of its size. A linter forbids the use of the library in
// all other packages.
//
// A message is an array, and so is each part of it to which later releases may add fields. A writer omits
// absent fields at the end. A reader reads the fields that it knows. It skips later fields, or keeps their
// bytes to relay them.
package wire
