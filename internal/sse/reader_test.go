package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// The reader finds a batch between other lines, even if the stream arrives in pieces of any size.
func TestReader(t *testing.T) {
	in := NewReader(strings.NewReader(
		": comment\n\nid: 1\r\nevent: batch\r\ndata: {\"version\":1}\r\n\r\n"+
			"event: other\ndata: x\n\nretry: 5\n\ndata: of no kind\n\nevent: batch\n\n"+
			"event:batch\ndata:{\ndata: }\nunknown\n\n"+
			"event: batch\ndata: broken off\n"), "batch", 1<<20)
	for _, want := range []string{"{\"version\":1}\n", "{\n}\n"} {
		if got, err := in.Next(); string(got) != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if got, err := in.Next(); got != nil || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %q, %v", got, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("event: batch\ndata: {}\n\n")
	f.Add("id: run-7\nevent: batch\ndata: {\"version\":7}\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := NewReader(strings.NewReader(text), "batch", 1<<20)
		total := 0
		for {
			data, err := in.Next()
			if err != nil {
				return
			}
			if total += len(data); len(data) == 0 || total > len(text)+strings.Count(text, "data") {
				t.Fatalf("%q: %q", text, data)
			}
		}
	})
}
