package term

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"pgregory.net/rapid"
)

// TestSheetFits: no line of any table is wider than the terminal, and nothing is cut if there is enough room.
func TestSheetFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 6).Draw(t, "columns")
		cell := rapid.StringMatching(`[a-z0-9.:%-]{1,30}|[a-zö部屋é]{1,20}`)
		s := NewSheet(strings.Join(rapid.SliceOfN(cell, columns, columns).Draw(t, "header"), "\t"))
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			row := make([]any, columns)
			for k := range row {
				row[k] = cell.Draw(t, "cell")
			}
			s.Row(row...)
		}
		most := rapid.IntRange(1, 200).Draw(t, "most")
		widest := 0
		for _, l := range s.Lines(0) {
			widest = max(widest, Columns(l.In(false)))
		}
		for i, l := range s.Lines(most) {
			text := l.In(false)
			if Columns(text) > most {
				t.Fatalf("%q has %d columns, at most %d", text, Columns(text), most)
			}
			if widest <= most && text != s.Lines(0)[i].In(false) {
				t.Fatalf("%q was cut, although %d columns are enough", text, widest)
			}
		}
	})
}

// TestSheetLikeTabwriter: without colors and wide characters, a sheet looks exactly like a table of text/tabwriter.
func TestSheetLikeTabwriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 5).Draw(t, "columns")
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,12}`), columns, columns), 1, 6).Draw(t, "rows")
		var want strings.Builder
		w := tabwriter.NewWriter(&want, 0, 0, gap, ' ', 0)
		var s Sheet
		for _, row := range rows {
			_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
			cells := make([]any, columns)
			for i := range row {
				cells[i] = row[i]
			}
			s.Row(cells...)
		}
		_ = w.Flush()
		if got := Text(s.Lines(0), false, "\n"); got != want.String() {
			t.Fatalf("got\n%swant\n%s", got, &want)
		}
	})
}

// TestFit: columns are narrowed before a column is dropped, and never more than needed.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		widths []int
		most   int
		want   []int
	}{
		{[]int{5, 30, 20}, 59, []int{5, 30, 20}},
		{[]int{5, 30, 20}, 58, []int{5, 29, 20}},
		{[]int{5, 30, 20}, 45, []int{5, 18, 18}},
		{[]int{5, 30, 20}, 33, []int{5, 12, 12}},
		{[]int{5, 30, 20}, 32, []int{5, 12}},
		{[]int{12, 12, 12}, 26, []int{12, 12}},
		{[]int{12, 12, 12}, 25, []int{12}},
		{[]int{12, 12}, 3, []int{3}},
	} {
		if got := fit(slices.Clone(c.widths), c.most); !slices.Equal(got, c.want) {
			t.Errorf("fit(%v, %d) is %v, want %v", c.widths, c.most, got, c.want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"abcd", 1, "…"},
		{"abcd", 0, ""},
		{"", 0, ""},
		{"部屋", 4, "部屋"},
		{"部屋x", 4, "部…"}, // half a character cannot be shown
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := clip(c.text, c.most); got != c.want {
			t.Errorf("clip(%q, %d) is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// TestClipped: control characters are escaped before the text is cut, so the escapes count as they are shown.
func TestClipped(t *testing.T) {
	if got := TextLine("\x1b[K of an agent").Clipped(9).In(false); got != `\x1b[K o…` {
		t.Errorf("got %q", got)
	}
}

// TestTones: color codes do not count for the width of a column.
func TestTones(t *testing.T) {
	s := NewSheet("A\tB")
	s.Row(Toned{"long", Bad}, Toned{"x", Plain})
	for colours, want := range map[bool]string{
		false: "A     B\nlong  x\n",
		true:  "\x1b[1mA\x1b[0m     \x1b[1mB\x1b[0m\n\x1b[31mlong\x1b[0m  x\n",
	} {
		if got := Text(s.Lines(0), colours, "\n"); got != want {
			t.Errorf("colours %v: %q", colours, got)
		}
	}
}

// TestWrapped: no line is too long, unless a single word is, and no word is lost.
func TestWrapped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{3,20}`), 10, 30).Draw(t, "words")
		columns := rapid.IntRange(20, 30).Draw(t, "columns")
		lines := Wrapped(strings.Join(words, " "), columns)
		for _, l := range lines {
			if Columns(l) > columns {
				t.Fatalf("%q is longer than %d", l, columns)
			}
		}
		if got := strings.Fields(strings.Join(lines, " ")); !slices.Equal(got, words) {
			t.Fatalf("got %q, want %q", got, words)
		}
	})
}
