package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxPipeline is how many commands share a round trip, so that other callers get their turn.
	maxPipeline = 128

	// page is how many rooms a command returns at most. With a small limit, up to maxPipeline pages are read
	// unnecessarily.
	page = 64
)

// Index implements pinstore.Store. It takes a command for each partition, and two for each 64 rooms of each
// selected incarnation in each partition. 128 commands share a round trip. It removes stale entries. Rooms
// that are pinned or released at the same time may be missing. If some keys cannot be read, because a server
// is down or a value is not from roost, it returns the other rooms with the error.
func (s *Store) Index(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	shelves, failed := s.shelves(ctx, partitions, want)
	var found []pinstore.Entry
	var stale []call
	for len(shelves) > 0 && len(found) < limit {
		some := shelves[:min(maxPipeline, len(shelves))]
		got, err := s.read(ctx, some)
		failed = cmp.Or(failed, err)
		found = append(found, got.entries...)
		stale = append(stale, got.stale...)
		shelves = append(got.rest, shelves[len(some):]...)
	}
	s.tidy(ctx, stale) // not earlier, because removals would shift the pages
	return found[:min(len(found), max(limit, 0))], failed
}

// reading is the result of reading a page of some shelves.
type reading struct {
	entries []pinstore.Entry
	rest    []shelf // shelves with more rooms
	stale   []call  // to remove stale entries
}

// shelf is the index of an incarnation in a partition.
type shelf struct {
	partition placement.Partition
	at        lease.Incarnation
	read      int // entries so far
}

// shelves returns the shelves of the incarnations for which want returns true. It only calls want on the
// caller's goroutine.
func (s *Store) shelves(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
) (found []shelf, failed error) {
	for len(partitions) > 0 {
		some := partitions[:min(maxPipeline, len(partitions))]
		partitions = partitions[len(some):]
		asks := make([]command, len(some))
		for i, p := range some {
			asks[i] = command{"ZRANGE", []string{s.keys.incarnations(p)}, []string{"0", "-1"}}
		}
		lists, err := s.lists(ctx, asks)
		failed = cmp.Or(failed, err)
		for i, p := range some {
			for _, text := range lists[i] {
				switch at, err := parseIncarnation(text); {
				case err != nil:
					failed = cmp.Or(failed, storeError(fmt.Sprintf("key %q", s.keys.incarnations(p)), fmt.Errorf("member %.80q: %w", text, err)))
				case want(at):
					found = append(found, shelf{partition: p, at: at})
				}
			}
		}
	}
	return found, failed
}

// read reads the next page of each shelf, latest expiry first, so that stale entries do not hide other
// entries.
func (s *Store) read(ctx context.Context, shelves []shelf) (reading, error) {
	asks := make([]command, len(shelves))
	for i, of := range shelves {
		asks[i] = command{
			"ZREVRANGE",
			[]string{s.keys.rooms(of.partition, textOf(of.at))},
			[]string{strconv.Itoa(of.read), strconv.Itoa(of.read + page - 1)},
		}
	}
	pages, failed := s.lists(ctx, asks)
	var got reading
	full := make([]int, 0, len(shelves)) // shelves with rooms on this page
	for i, rooms := range pages {
		of := shelves[i]
		switch {
		case rooms == nil: // it could not be read
		case len(rooms) > 0:
			full = append(full, i)
		case of.read == 0: // a listed incarnation without rooms
			got.stale = append(got.stale, s.cleanCall(of, nil))
		}
		if len(rooms) == page {
			of.read += page
			got.rest = append(got.rest, of)
		}
	}
	pins, err := s.pins(ctx, shelves, full, pages)
	for j, i := range full {
		if pins[j] != nil {
			got.compare(s, shelves[i], pages[i], pins[j])
		}
	}
	return got, cmp.Or(failed, err)
}

// compare collects the rooms with a pin of the shelf's incarnation.
func (r *reading) compare(s *Store, of shelf, rooms, pins []string) {
	var gone []string
	for i, room := range rooms {
		pin, err := parsePin(pins[i])
		if err == nil && pin.Incarnation == of.at {
			r.entries = append(r.entries, pinstore.Entry{Partition: of.partition, Room: room, Pin: pin})
		} else {
			gone = append(gone, room)
		}
	}
	if len(gone) > 0 {
		r.stale = append(r.stale, s.cleanCall(of, gone))
	}
}

// pins returns the values of the rooms' pins, "" for none.
func (s *Store) pins(ctx context.Context, shelves []shelf, full []int, pages [][]string) ([][]string, error) {
	asks := make([]command, len(full))
	for j, i := range full {
		names := make([]string, len(pages[i]))
		for k, room := range pages[i] {
			names[k] = s.keys.pin(shelves[i].partition, room)
		}
		asks[j] = command{"MGET", names, nil}
	}
	return s.lists(ctx, asks)
}

func (s *Store) cleanCall(of shelf, rooms []string) call {
	at := textOf(of.at)
	c := call{
		keys: []string{s.keys.rooms(of.partition, at), s.keys.incarnations(of.partition)},
		args: append([]string{at}, rooms...),
	}
	for _, room := range rooms {
		c.keys = append(c.keys, s.keys.pin(of.partition, room))
	}
	return c
}

// tidy removes stale entries. After a failure the next call finds them again.
func (s *Store) tidy(ctx context.Context, calls []call) {
	if len(calls) > 0 {
		_, _ = s.runPlain(ctx, s.clean, calls...)
	}
}

// lists runs commands that return lists of strings. It returns nil for the list of a failed command.
func (s *Store) lists(ctx context.Context, asks []command) (lists [][]string, failed error) {
	lists = make([][]string, len(asks))
	answers, err := s.doPlain(ctx, asks...)
	if err != nil {
		return lists, storeError("index", err)
	}
	for i, answer := range answers {
		list, err := answer.AsStrSlice()
		if err != nil {
			failed = cmp.Or(failed, storeError(fmt.Sprintf("%s %.200q", asks[i].name, asks[i].keys[0]), err))
			continue
		}
		lists[i] = append(make([]string, 0, len(list)), list...)
	}
	return lists, failed
}
