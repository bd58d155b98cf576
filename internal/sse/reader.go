package sse

import (
	"bufio"
	"bytes"
	"io"
)

// Reader parses a text/event-stream.
type Reader struct {
	lines *bufio.Scanner
	kind  string
	most  int
}

// NewReader returns a reader for events of the type kind. most limits the data of an event, and each line, in
// bytes.
func NewReader(r io.Reader, kind string, most int) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, most)
	return &Reader{lines, kind, most}
}

// Next returns the data of the next event. It skips comments, events of other types, and unknown fields. The
// data of an event can have several lines. If the stream ends in the middle of an event, Next drops that
// event. At the end of the stream, Next returns io.EOF.
func (r *Reader) Next() ([]byte, error) {
	var kind, data []byte
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if len(line) == 0 {
			if string(kind) == r.kind && len(data) > 0 {
				return data, nil
			}
			kind, data = nil, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			kind = bytes.Clone(value)
		case "data":
			if len(data)+len(value) > r.most {
				return nil, bufio.ErrTooLong
			}
			data = append(append(data, value...), '\n')
		}
	}
	if err := r.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
