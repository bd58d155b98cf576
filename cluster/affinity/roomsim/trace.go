package roomsim

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

const whole = 100 // percent

// ReadTrace reads a trace in CSV. Each line is time,room,participants or time,room,participants,zone: from that
// time, the room has this many participants, and 0 ends the room. A time is in seconds since any moment, or as in
// RFC 3339. A first line of names is skipped. The lines must be in the order of time.
func ReadTrace(in io.Reader) ([]Event, error) {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord, lines.ReuseRecord, lines.TrimLeadingSpace = -1, true, true
	var events []Event
	var first time.Duration
	names := make(map[string]string) // one copy of each name
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("roomsim: %w", err)
		}
		line, _ := lines.FieldPos(0)
		e, err := parse(fields, names)
		if err != nil && line == 1 {
			continue // names of columns
		}
		if err != nil {
			return nil, fmt.Errorf("roomsim: line %d: %w", line, err)
		}
		if len(events) == 0 {
			first = e.At
		}
		e.At -= first
		if n := len(events); n > 0 && e.At < events[n-1].At {
			return nil, fmt.Errorf("roomsim: line %d: the time is before that of the line above; sort the trace by time", line)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, errors.New("roomsim: the trace is empty; want lines of time,room,participants[,zone]")
	}
	return slices.Clip(events), nil
}

func parse(fields []string, names map[string]string) (e Event, err error) {
	if len(fields) != 3 && len(fields) != 4 {
		return e, fmt.Errorf("%d fields; want time,room,participants[,zone]", len(fields))
	}
	if e.At, err = parseTime(fields[0]); err != nil {
		return e, err
	}
	if e.Participants, err = strconv.Atoi(fields[2]); err != nil || e.Participants < 0 {
		return e, fmt.Errorf("%.40q participants; want a number from 0", fields[2])
	}
	if fields[1] == "" {
		return e, errors.New("the room has no name")
	}
	e.Room = copyOf(fields[1], names)
	if len(fields) == 4 {
		e.Zone = copyOf(fields[3], names)
	}
	return e, nil
}

func copyOf(name string, names map[string]string) string {
	if known, ok := names[name]; ok {
		return known
	}
	names[name] = name
	return name
}

func parseTime(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1e10 {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("time %.40q; want seconds, or a time such as 2026-05-04T10:00:00Z", text)
	}
	return time.Duration(at.UnixNano()), nil
}

// Zones returns the zones of a trace in the order of their names.
func Zones(events []Event) (zones []string) {
	known := make(map[string]bool)
	for _, e := range events {
		if e.Zone != "" && !known[e.Zone] {
			known[e.Zone] = true
			zones = append(zones, e.Zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// Needed returns the result of the smallest fleet that carries a trace: it refuses no room, and no node is ever
// above its capacity. c.Nodes is ignored. Needed simulates several fleets, and calls tried after each of them,
// unless tried is nil. Needed fails if a single room costs more than a node's capacity.
func Needed(events []Event, c Config, tried func(Result)) (Result, error) {
	carries := func(nodes int) (Result, bool, error) {
		c.Nodes = nodes
		r, err := Run(events, c)
		if err == nil && tried != nil {
			tried(r)
		}
		return r, err == nil && r.Refused == 0 && r.Fullest.Units <= c.Capacity, err
	}
	most := max(1, len(c.Zones))
	r, ok, err := carries(most)
	if err != nil {
		return r, err
	}
	if limit := c.Capacity * int64(cmp.Or(c.HardCeiling, whole)) / whole; r.Largest.Units > min(limit, c.Capacity) {
		return r, fmt.Errorf("roomsim: room %q with %d participants costs %d units, and a node carries %d; give it relays, or the nodes more capacity",
			r.Largest.Name, r.Largest.Participants, r.Largest.Units, min(limit, c.Capacity))
	}
	if ok {
		return r, nil
	}
	return fewest(most, int(r.Peak.Units/c.Capacity), carries)
}

// fewest returns the result of the smallest number of nodes that carries the trace. few nodes are too few, and likely
// nodes are the first guess.
func fewest(few, likely int, carries func(nodes int) (Result, bool, error)) (r Result, err error) {
	enough := max(few+1, likely)
	for ok := false; ; enough += (enough + 3) / 4 {
		if r, ok, err = carries(enough); err != nil {
			return r, err
		}
		if ok {
			break
		}
		few = enough
	}
	for few+1 < enough {
		middle := (few + enough) / 2
		smaller, ok, err := carries(middle)
		switch {
		case err != nil:
			return r, err
		case ok:
			r, enough = smaller, middle
		default:
			few = middle
		}
	}
	return r, nil
}
