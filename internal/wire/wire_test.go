package wire_test

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/wire"
)

// integers contains the integers at the limits of all encoded widths.
var integers = []int64{
	0, 1, 127, 128, 255, 256, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64,
	-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64,
}

// A Reader reads what a Writer has written, and so does an independent decoder.
func TestRoundTrip(t *testing.T) {
	for _, v := range integers {
		b := wire.Append([]byte("before"), func(w *wire.Writer) { w.Int(v) })[len("before"):]
		if err := wire.Read(b, func(r *wire.Reader) {
			if got := r.Int(v, v); got != v {
				t.Errorf("%d is read as %d", v, got)
			}
		}); err != nil || len(b) > wire.MaxInteger {
			t.Errorf("%d takes %d bytes: %v", v, len(b), err)
		}
		if got := independent(t, b); fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%d is %v to another decoder", v, got)
		}
		if v >= 0 {
			unsigned := wire.Append(nil, func(w *wire.Writer) { w.Uint(uint64(v)) })
			if err := wire.Read(unsigned, func(r *wire.Reader) {
				if got := r.Uint(uint64(v)); got != uint64(v) {
					t.Errorf("%d is read as %d", v, got)
				}
			}); err != nil || !bytes.Equal(unsigned, b) {
				t.Errorf("%d: % x, %v", v, unsigned, err)
			}
		}
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, math.MaxUint16, math.MaxUint16 + 1} {
		content := bytes.Repeat([]byte{'x'}, n)
		b := wire.Append(nil, func(w *wire.Writer) {
			w.Array(n + 3)
			w.Raw(make([]byte, n)) // n zeroes
			w.Bytes(content)
			w.Text(string(content))
			w.Map(n)
			for i := range n {
				w.Uint(uint64(i))
				w.Bool(i%2 == 0)
			}
		})
		if err := wire.Read(b, func(r *wire.Reader) {
			r.Fields(n+3, func() {
				for range n {
					r.Uint(0)
				}
				if got := r.Bytes(n); !bytes.Equal(got, content) {
					t.Errorf("%d bytes are read as %d", n, len(got))
				}
				if got := r.Text(n); got != string(content) {
					t.Errorf("a text of %d bytes is read as one of %d", n, len(got))
				}
				if got := r.Map(n); got != n {
					t.Errorf("a map of %d is read as one of %d", n, got)
				}
				for i := range n {
					if got := r.Uint(uint64(n)); got != uint64(i) || r.Bool() != (i%2 == 0) {
						t.Errorf("key %d is read as %d", i, got)
					}
				}
			})
		}); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		if size := len(wire.Append(nil, func(w *wire.Writer) { w.Bytes(content) })); size != wire.BinSize(n) {
			t.Errorf("%d bytes take %d, not %d", n, size, wire.BinSize(n))
		}
		if size := wire.Size(func(w *wire.Writer) { w.Text(string(content)) }); size < n+1 || size > n+wire.MaxHeader {
			t.Errorf("a text of %d bytes takes %d", n, size)
		}
		got := independent(t, b).([]any)
		if len(got) != n+3 || got[n] != string(content) || got[n+1] != string(content) || len(got[n+2].(map[any]any)) != n {
			t.Errorf("%d: another decoder reads something else", n)
		}
	}
}

// independent decodes b with another library.
func independent(t *testing.T, b []byte) (v any) {
	t.Helper()
	handle := &codec.MsgpackHandle{WriteExt: true}
	handle.RawToString = true
	if err := codec.NewDecoderBytes(b, handle).Decode(&v); err != nil {
		t.Fatalf("% x: %v", b, err)
	}
	return v
}

// elements reads an array, and returns how many elements it has.
func elements(r *wire.Reader, least int) (n int) {
	r.Fields(least, func() { n = r.Left() })
	return n
}

// Each method rejects values of other types and values beyond its limit. After that, all methods return zero values.
func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		wire []byte
		read func(r *wire.Reader) any
	}{
		"nothing":        {nil, func(r *wire.Reader) any { return r.Uint(1) }},
		"-1 as unsigned": {[]byte{0xff}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"-1 of 64 bits as unsigned": {
			[]byte{0xd3, 255, 255, 255, 255, 255, 255, 255, 255},
			func(r *wire.Reader) any { return r.Uint(math.MaxUint64) },
		},
		"nil as unsigned":      {[]byte{0xc0}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"a float as unsigned":  {[]byte{0xca, 0, 0, 0, 0}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"a text as unsigned":   {[]byte{0xa1, '1'}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"true as unsigned":     {[]byte{0xc3}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"an array as unsigned": {[]byte{0x91, 1}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"256 of 255":           {[]byte{0xcd, 1, 0}, func(r *wire.Reader) any { return r.Uint(255) }},
		"2 of 1":               {[]byte{2}, func(r *wire.Reader) any { return r.Uint(1) }},
		"half an integer":      {[]byte{0xcf, 1, 2}, func(r *wire.Reader) any { return r.Uint(math.MaxUint64) }},
		"nil as an integer":    {[]byte{0xc0}, func(r *wire.Reader) any { return r.Int(-1, 1) }},
		"2^64-1 as an integer": {
			[]byte{0xcf, 255, 255, 255, 255, 255, 255, 255, 255},
			func(r *wire.Reader) any { return r.Int(math.MinInt64, math.MaxInt64) },
		},
		"-2 of -1":                    {[]byte{0xfe}, func(r *wire.Reader) any { return r.Int(-1, 1) }},
		"half a signed integer":       {[]byte{0xd2, 1}, func(r *wire.Reader) any { return r.Int(math.MinInt64, math.MaxInt64) }},
		"nil as a boolean":            {[]byte{0xc0}, func(r *wire.Reader) any { return r.Bool() }},
		"1 as a boolean":              {[]byte{1}, func(r *wire.Reader) any { return r.Bool() }},
		"a text as bytes":             {[]byte{0xa1, 'x'}, func(r *wire.Reader) any { return len(r.Bytes(9)) }},
		"nil as bytes":                {[]byte{0xc0}, func(r *wire.Reader) any { return len(r.Bytes(9)) }},
		"bytes that claim 4 GiB":      {[]byte{0xc6, 255, 255, 255, 255}, func(r *wire.Reader) any { return len(r.Bytes(math.MaxInt32)) }},
		"bytes that claim 2 GiB":      {[]byte{0xc6, 128, 0, 0, 0, 1}, func(r *wire.Reader) any { return len(r.Bytes(math.MaxInt32)) }},
		"bytes beyond the bound":      {[]byte{0xc4, 2, 1, 2}, func(r *wire.Reader) any { return len(r.Bytes(1)) }},
		"bytes of another length":     {[]byte{0xc4, 2, 1, 2}, func(r *wire.Reader) any { return len(r.Fixed(3)) }},
		"bytes as a text":             {[]byte{0xc4, 1, 'x'}, func(r *wire.Reader) any { return r.Text(9) }},
		"nil as a text":               {[]byte{0xc0}, func(r *wire.Reader) any { return r.Text(9) }},
		"a text that claims 4 GiB":    {[]byte{0xdb, 255, 255, 255, 255}, func(r *wire.Reader) any { return r.Text(math.MaxInt32) }},
		"a text beyond the bound":     {[]byte{0xa2, 'x', 'y'}, func(r *wire.Reader) any { return r.Text(1) }},
		"an array that claims 2^32-1": {[]byte{0xdd, 255, 255, 255, 255, 0}, func(r *wire.Reader) any { return elements(r, 0) }},
		"an array that claims 16":     {[]byte{0xdc, 0, 16, 0}, func(r *wire.Reader) any { return elements(r, 0) }},
		"nil as an array":             {[]byte{0xc0}, func(r *wire.Reader) any { return elements(r, 0) }},
		"a map as an array":           {[]byte{0x81, 0, 0}, func(r *wire.Reader) any { return elements(r, 0) }},
		"an array that is too short":  {[]byte{0x91, 0}, func(r *wire.Reader) any { return elements(r, 2) }},
		"a list beyond the bound":     {[]byte{0x92, 1, 2}, func(r *wire.Reader) any { n := 0; r.List(1, func() { n++ }); return n }},
		"a map that claims 2^32-1":    {[]byte{0xdf, 255, 255, 255, 255, 0}, func(r *wire.Reader) any { return r.Map(math.MaxInt32) }},
		"a map of more keys":          {[]byte{0x82, 0, 0, 1, 0}, func(r *wire.Reader) any { return r.Map(1) }},
		"an extension as a map":       {[]byte{0xd4, 0, 0, 0x80}, func(r *wire.Reader) any { return r.Map(9) }},
		"nil as a map":                {[]byte{0xc0}, func(r *wire.Reader) any { return r.Map(9) }},
		"a code that does not exist":  {[]byte{0xc1}, func(r *wire.Reader) any { return len(r.Raw()) }},
		"a rest beyond the bound":     {[]byte{0x92, 1, 2}, func(r *wire.Reader) any { r.Fields(0, func() { r.Rest(1) }); return 0 }},
		"a rest that is cut short":    {[]byte{0x92, 1}, func(r *wire.Reader) any { r.Fields(0, func() { r.Rest(9) }); return 0 }},
		"a second value":              {[]byte{0, 0}, func(r *wire.Reader) any { return r.Uint(9) }},
		"a value that is not read":    {[]byte{0}, func(*wire.Reader) any { return 0 }},
		"a problem of the caller":     {[]byte{0}, func(r *wire.Reader) any { r.Fail("x"); return r.Uint(9) }},
		"the left elements are nonsense": {
			[]byte{0x92, 0, 0xc1}, func(r *wire.Reader) any { r.Fields(0, func() { r.Uint(0) }); return r.Left() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.Read(c.wire, func(r *wire.Reader) {
				if got := c.read(r); fmt.Sprint(got) != "0" && got != "" && got != false {
					t.Errorf("read %v", got)
				}
				if name == "a second value" || name == "a value that is not read" {
					return
				}
				if all := fmt.Sprint(r.Failed(), r.Left(), r.Uint(9), r.Int(-9, 9), r.Bool(), len(r.Bytes(9)),
					r.Text(9), r.Map(9), len(r.Raw()), len(r.Rest(9)),
					elements(r, 0)); all != "true 0 0 0 false 00 0 0 0" {
					t.Errorf("after a problem: %s", all)
				}
				r.Skip()
			})
			if err == nil {
				t.Error("accepted")
			}
		})
	}
}

// A reader that knows fewer fields than the writer skips or keeps the other fields. A field that an earlier writer has
// not written is read as zero.
func TestFieldsOfOtherReleases(t *testing.T) {
	b := wire.Append(nil, func(w *wire.Writer) {
		w.Array(2)
		w.Array(4)
		w.Uint(1)
		w.Nil()
		w.Array(1)
		w.Text("later")
		w.Uint(2)
		w.Uint(3)
	})
	unread := func() { t.Error("a field that is not there is read") }
	if err := wire.Read(b, func(r *wire.Reader) {
		r.Fields(2, func() {
			r.Fields(2, func() {
				if one := r.Uint(9); one != 1 {
					t.Errorf("%d, want 1", one)
				}
				r.Optional(unread)
				rest := r.Rest(9)
				if n := wire.Count(rest); n != 2 || !bytes.Equal(rest, b[4:len(b)-1]) {
					t.Errorf("%d elements: % x", n, rest)
				}
				r.Optional(unread)
				r.List(9, unread)
				if r.Uint(9) != 0 || r.Text(9) != "" || r.Failed() {
					t.Error("behind the end is something")
				}
			})
			if three := r.Uint(9); three != 3 || r.Left() != 0 {
				t.Errorf("%d behind the inner array, and %d more", three, r.Left())
			}
		})
		if r.At() != len(b) {
			t.Errorf("read %d of %d bytes", r.At(), len(b))
		}
	}); err != nil {
		t.Error(err)
	}
	if n := wire.Count([]byte{0x92, 1}); n != -1 {
		t.Errorf("an array that is cut short counts as %d values", n)
	}
}

// Absent fields are nil, and omitted at the end. The fields of a later release come after all other fields.
func TestOptionalFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 20).Draw(t, "least")
		present := rapid.SliceOfN(rapid.Bool(), 0, 30).Draw(t, "present")
		later := rapid.SliceOfN(rapid.ByteRange(0, 127), 0, 300).Draw(t, "later") // small integers
		b := wire.Append([]byte("before"), func(w *wire.Writer) {
			w.Array(2)
			f := w.Fields(least)
			for i := range least {
				w.Uint(uint64(i))
			}
			for i := range present {
				f.Optional(present[i], func() { w.Uint(uint64(i)) })
			}
			f.End(later)
			w.Text("behind")
		})[len("before"):]
		want := make([]any, 0, least)
		for i := range least {
			want = append(want, i)
		}
		for i, there := range present {
			if want = append(want, i); !there {
				want[len(want)-1] = nil
			}
		}
		for len(want) > least && want[len(want)-1] == nil && len(later) == 0 {
			want = want[:len(want)-1]
		}
		for _, v := range later {
			want = append(want, v)
		}
		var got []any
		err := codec.NewDecoderBytes(b, &codec.MsgpackHandle{}).Decode(&got)
		if err != nil || fmt.Sprint(got[0]) != fmt.Sprint(want) || fmt.Sprintf("%s", got[1]) != "behind" {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
		if err := wire.Read(b, func(r *wire.Reader) {
			r.Fields(2, func() {
				r.Fields(least, func() {
					for range least {
						r.Uint(99)
					}
					for i, there := range present {
						read := false
						r.Optional(func() { read = r.Uint(99) == uint64(i) })
						if read != there {
							t.Fatalf("field %d: present %v, read %v", i, there, read)
						}
					}
					if rest := r.Rest(300); !bytes.Equal(rest, later) {
						t.Fatalf("later fields % x, want % x", rest, later)
					}
				})
				if s := r.Text(9); s != "behind" {
					t.Fatalf("%q stands behind", s)
				}
			})
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Skip needs no memory and no stack for nested values, no matter how many there are.
func TestSkipTakesNoMemory(t *testing.T) {
	const size = 6 << 20
	for name, b := range map[string][]byte{
		"arrays":         append(bytes.Repeat([]byte{0x91}, size), 0),
		"cut arrays":     bytes.Repeat([]byte{0x91}, size),
		"wide arrays":    bytes.Repeat([]byte{0x9f}, size),
		"maps":           append(bytes.Repeat([]byte{0x81, 0}, size/2), 0),
		"arrays of 2^32": bytes.Repeat([]byte{0xdd, 255, 255, 255, 255}, size/5),
		"numbers":        append([]byte{0xdd, 0, 0x5f, 0xff, 0xfb}, make([]byte, size-5)...),
	} {
		var err error
		read := func() { err = wire.Read(b, func(r *wire.Reader) { r.Skip() }) }
		// The garbage collector may have freed the Reader that is kept for reuse.
		if got := min(allocated(read), allocated(read), allocated(read)); got > 4<<10 {
			t.Errorf("%s: %d bytes are allocated", name, got)
		}
		if valid := name == "arrays" || name == "maps" || name == "numbers"; valid != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Neither writing nor reading a value allocates memory.
func TestValuesAreNotAllocated(t *testing.T) {
	buf := make([]byte, 0, 1<<10)
	var b []byte
	write := func() {
		b = wire.Append(buf, func(w *wire.Writer) {
			w.Array(100)
			for i := range 20 {
				w.Uint(uint64(i) << (3 * i))
				w.Int(-int64(i) << (3 * i))
				w.Bool(true)
				w.Bytes(buf[:8])
				w.Map(1)
				w.Array(1)
				w.Nil()
				w.Text("x")
			}
		})
	}
	read := func() {
		err := wire.Read(b, func(r *wire.Reader) {
			r.Fields(100, func() {
				for range 20 {
					r.Uint(math.MaxUint64)
					r.Int(math.MinInt64, 0)
					r.Bool()
					r.Bytes(8)
					r.Raw()
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, write); n > 1 {
		t.Errorf("writing allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, read); n > 1 {
		t.Errorf("reading allocates %v times", n)
	}
}

// Skip skips exactly one value, whichever value another encoder has written.
func TestSkipsAnyValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		handle := &codec.MsgpackHandle{WriteExt: true}
		var b []byte
		if err := codec.NewEncoderBytes(&b, handle).Encode(drawAny(t, 4)); err != nil {
			t.Fatal(err)
		}
		if err := wire.Read(b, func(r *wire.Reader) { r.Skip() }); err != nil {
			t.Fatalf("% x: %v", b, err)
		}
		if n := wire.Count(slices.Concat(b, b, b)); n != 3 {
			t.Fatalf("% x is %d values", b, n)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if err := wire.Read(b[:cut], func(r *wire.Reader) { r.Skip() }); err == nil {
			t.Fatalf("% x is a whole value", b[:cut])
		}
	})
}

func drawAny(t *rapid.T, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.Int64().Draw(t, "int")
	case 1:
		return rapid.StringN(0, -1, 300).Draw(t, "text")
	case 2:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
	case 3:
		return rapid.Float64().Draw(t, "float")
	case 4:
		return rapid.SampledFrom([]any{nil, true, false, float32(1), uint64(math.MaxUint64)}).Draw(t, "other")
	case 5:
		all := make([]any, rapid.IntRange(0, 20).Draw(t, "length"))
		for i := range all {
			all[i] = drawAny(t, depth-1)
		}
		return all
	default:
		all := make(map[int]any)
		for i := range rapid.IntRange(0, 20).Draw(t, "size") {
			all[i] = drawAny(t, depth-1)
		}
		return all
	}
}

// FuzzReader checks that no input makes a Reader panic, read beyond the end, or allocate more than about the size of
// the input in each call.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0x93, 1, 0xff, 0xa1, 'x'}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add(bytes.Repeat([]byte{0x91}, 1000), []byte{10, 9, 0})
	f.Add([]byte{0xdd, 255, 255, 255, 255}, []byte{7})
	f.Add([]byte{0xc6, 255, 255, 255, 255}, []byte{3})
	f.Add([]byte{0xdf, 255, 255, 255, 255}, []byte{6})
	f.Add(append(bytes.Repeat([]byte{0x8a}, 4), make([]byte, 20)...), []byte{6, 6, 6, 6}) // maps in maps
	f.Fuzz(func(t *testing.T, b, calls []byte) {
		calls = calls[:min(len(calls), 100)]
		n := uint64(len(calls))
		got := allocated(func() {
			_ = wire.Read(b, func(r *wire.Reader) {
				for len(calls) > 0 {
					calls = call(r, calls)
					if r.At() > len(b) || r.Left() < 0 || r.Left() > len(b)+1 {
						t.Fatalf("at %d of %d, %d elements left", r.At(), len(b), r.Left())
					}
				}
			})
		})
		if most := n*uint64(len(b)) + 16<<10; got > most {
			t.Errorf("%d bytes are allocated, at most %d", got, most)
		}
	})
}

// call makes the first of the calls, and returns the calls that remain. If a method takes a function, the function
// makes the next call.
func call(r *wire.Reader, calls []byte) []byte {
	c, calls := calls[0], calls[1:]
	inside := func() {
		if len(calls) > 0 {
			calls = call(r, calls)
		}
	}
	switch c % 12 {
	case 0:
		r.Uint(math.MaxUint64)
	case 1:
		r.Int(math.MinInt64, math.MaxInt64)
	case 2:
		r.Bool()
	case 3:
		r.Bytes(math.MaxInt32)
	case 4:
		_ = r.Text(math.MaxInt32)
	case 5:
		r.Handle()
	case 6:
		r.Map(math.MaxInt32)
	case 7:
		r.Fields(0, inside)
	case 8:
		r.List(math.MaxInt32, func() {
			inside()
			r.Skip()
		})
	case 9:
		r.Skip()
	case 10:
		r.Rest(math.MaxInt32)
	case 11:
		r.Optional(inside)
	}
	return calls
}

func BenchmarkWire(b *testing.B) {
	buf := make([]byte, 0, 1<<10)
	write := func(w *wire.Writer) { // like a heartbeat in a message
		for range 50 {
			f := w.Fields(4)
			w.Uint(2)
			w.Uint(4)
			w.Uint(1234)
			w.Int(2450)
			f.Optional(true, func() { w.Int(-3) })
			f.End(nil)
		}
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			buf = wire.Append(buf[:0], func(w *wire.Writer) {
				w.Array(50)
				write(w)
			})
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := wire.Read(buf, func(r *wire.Reader) {
				r.List(50, func() {
					r.Fields(4, func() {
						r.Uint(9)
						r.Uint(9)
						r.Uint(9999)
						r.Int(-1, 9999)
						r.Optional(func() { r.Int(-9, 9) })
					})
				})
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("skip", func(b *testing.B) {
		for b.Loop() {
			_ = wire.Read(buf, func(r *wire.Reader) { r.Skip() })
		}
	})
}
