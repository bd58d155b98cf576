package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxPipeline is the maximum number of commands that share a round trip, so that other callers are not
	// delayed.
	maxPipeline = 128

	// page is the maximum number of rooms that a command returns. If the limit is small, Index can read up to
	// maxPipeline unnecessary pages.
	page = 64
)

// Index implements pinstore.Store. Index lists the incarnations with one command, or with one command for
// each partition in a Redis Cluster. In each partition, Index then takes two commands for each 64 rooms of
// each selected incarnation. Up to 128 commands share a round trip.
//
// Index removes stale entries. Index can miss rooms that are pinned or released at the same time. If some
// keys cannot be read, because a server is down or because roost did not write the value, Index returns the
// other rooms with the error.
func (s *Store) Index(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	s.probe(ctx)
	names, err := s.keys()
	if err != nil {
		return nil, storeError("index", err)
	}
	shelves, failed := s.shelves(ctx, names, partitions, want)
	var found []pinstore.Entry
	var stale []call
	for len(shelves) > 0 && len(found) < limit {
		some := shelves[:min(maxPipeline, len(shelves))]
		got, err := s.read(ctx, names, some)
		failed = cmp.Or(failed, err)
		found = append(found, got.entries...)
		stale = append(stale, got.stale...)
		shelves = append(got.rest, shelves[len(some):]...)
	}
	s.tidy(ctx, stale) // not earlier, because removals would shift the pages
	return found[:min(len(found), max(limit, 0))], failed
}

// reading is the result of reading one page of some shelves.
type reading struct {
	entries []pinstore.Entry
	rest    []shelf // shelves with more rooms
	stale   []call  // to remove stale entries
}

// shelf is the index of one incarnation in one partition.
type shelf struct {
	partition placement.Partition
	at        lease.Incarnation
	read      int // number of entries read so far
}

// shelves returns the shelves of the incarnations for which want returns true. shelves calls want only on the
// caller's goroutine.
func (s *Store) shelves(
	ctx context.Context,
	names keys,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
) (found []shelf, failed error) {
	of := map[string][]placement.Partition{} // the partitions of each list
	var lists []string
	for _, p := range partitions {
		list := names.incarnations(p)
		if of[list] == nil {
			lists = append(lists, list)
		}
		of[list] = append(of[list], p)
	}
	for some := range slices.Chunk(lists, maxPipeline) {
		asks := make([]redisconn.Command, len(some))
		for i, list := range some {
			asks[i] = command("ZRANGE", []string{list}, "0", "-1")
		}
		listed, err := s.lists(ctx, asks)
		failed = cmp.Or(failed, err)
		for i, list := range some {
			for _, text := range listed[i] {
				at, err := parseIncarnation(text)
				if err != nil {
					failed = cmp.Or(failed, storeError(fmt.Sprintf("key %q", list), fmt.Errorf("member %.80q: %w", text, err)))
					continue
				}
				if want(at) {
					for _, p := range of[list] {
						found = append(found, shelf{partition: p, at: at})
					}
				}
			}
		}
	}
	return found, failed
}

// read reads the next page of each shelf. Entries with the latest expiry come first, so that stale entries do
// not displace other entries.
func (s *Store) read(ctx context.Context, names keys, shelves []shelf) (reading, error) {
	asks := make([]redisconn.Command, len(shelves))
	for i, of := range shelves {
		from, to := scores(of.partition)
		asks[i] = command("ZREVRANGEBYSCORE", []string{names.rooms(of.partition, textOf(of.at))},
			to, from, "LIMIT", strconv.Itoa(of.read), strconv.Itoa(page))
	}
	pages, failed := s.lists(ctx, asks)
	var got reading
	full := make([]int, 0, len(shelves)) // shelves with rooms on this page
	empty := make(map[string]bool)
	for i, rooms := range pages {
		of := shelves[i]
		switch {
		case rooms == nil: // the page could not be read
		case len(rooms) > 0:
			full = append(full, i)
		case of.read == 0: // perhaps a listed incarnation without rooms
			if index := asks[i].Keys[0]; !empty[index] {
				empty[index] = true
				got.stale = append(got.stale, cleanCall(names, of, nil))
			}
		}
		if len(rooms) == page {
			of.read += page
			got.rest = append(got.rest, of)
		}
	}
	pins, err := s.pins(ctx, names, shelves, full, pages)
	for j, i := range full {
		if pins[j] != nil {
			got.compare(names, shelves[i], pages[i], pins[j])
		}
	}
	return got, cmp.Or(failed, err)
}

// compare adds the rooms that are pinned to the shelf's incarnation to the entries. All other rooms are
// stale.
func (r *reading) compare(names keys, of shelf, rooms, pins []string) {
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
		r.stale = append(r.stale, cleanCall(names, of, gone))
	}
}

// pins returns the values of the pins of the rooms, with "" for a room without a pin.
func (s *Store) pins(ctx context.Context, names keys, shelves []shelf, full []int, pages [][]string) ([][]string, error) {
	asks := make([]redisconn.Command, len(full))
	for j, i := range full {
		pins := make([]string, len(pages[i]))
		for k, room := range pages[i] {
			pins[k] = names.pin(shelves[i].partition, room)
		}
		asks[j] = command("MGET", pins)
	}
	return s.lists(ctx, asks)
}

func cleanCall(names keys, of shelf, rooms []string) call {
	at := textOf(of.at)
	c := call{
		keys: []string{names.rooms(of.partition, at), names.incarnations(of.partition)},
		args: append([]string{at}, rooms...),
	}
	for _, room := range rooms {
		c.keys = append(c.keys, names.pin(of.partition, room))
	}
	return c
}

// tidy removes stale entries. If tidy fails, the next call of Index finds the stale entries again.
func (s *Store) tidy(ctx context.Context, calls []call) {
	s.clean.run(ctx, s.conn, calls...)
}

// lists runs commands that return lists of strings. If a command fails, its list is nil.
func (s *Store) lists(ctx context.Context, asks []redisconn.Command) (lists [][]string, failed error) {
	lists = make([][]string, len(asks))
	if len(asks) == 0 {
		return lists, nil
	}
	for i, reply := range s.conn.Do(ctx, asks...) {
		list, err := reply.Texts()
		if err != nil {
			failed = cmp.Or(failed, storeError(fmt.Sprintf("%s %.200q", asks[i].Head[0], asks[i].Keys[0]), err))
			continue
		}
		lists[i] = list
	}
	return lists, failed
}
