package placement

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	defaultBound     = 125 // percent, of bounded-rendezvous
	defaultThreshold = 1   // of least-partitions
	defaultMoves     = 3   // moves per pass, of least-partitions
)

// Strategies lists the built-in strategies with default parameters, for messages and help texts.
const Strategies = "rendezvous, bounded-rendezvous-125 (percent of the fair share), " +
	"least-partitions-1-3 (threshold, moves per pass), modulo, vnode-ring, classic-ring, " +
	"each also with +zones at its end"

const zonesSuffix = "+zones"

// ParseStrategy returns the built-in strategy with the given name. Parameters are optional:
// bounded-rendezvous means bounded-rendezvous-125, and least-partitions means least-partitions-1-3. The error
// for an unknown name lists the valid names.
func ParseStrategy(name string) (Strategy, error) {
	base, zones := strings.CutSuffix(name, zonesSuffix)
	s, short := parsePlain(base)
	if s == nil {
		return nil, fmt.Errorf("placement: there is no strategy %.80q; the strategies are %s", name, Strategies)
	}
	if !short && s.Name() != base {
		return nil, fmt.Errorf("placement: strategy %.80q has parameters out of bounds; the nearest is %s", name, s.Name())
	}
	if zones {
		return Zoned(s), nil
	}
	return s, nil
}

// parsePlain returns the strategy with the given name, or nil if the name is unknown. It sets short if the
// name has no parameters. If parameters are out of range, the name of the returned strategy differs from the
// given name.
func parsePlain(name string) (s Strategy, short bool) {
	switch name {
	case "rendezvous":
		return Rendezvous(), false
	case "modulo":
		return Modulo(), false
	case "vnode-ring":
		return VnodeRing(), false
	case "classic-ring":
		return ClassicRing(), false
	case "bounded-rendezvous":
		return Bounded(defaultBound), true
	case "least-partitions":
		return LeastPartitions(defaultThreshold, defaultMoves), true
	}
	if percent, ok := strings.CutPrefix(name, "bounded-rendezvous-"); ok {
		if n, err := strconv.Atoi(percent); err == nil {
			return Bounded(n), false
		}
	}
	if both, ok := strings.CutPrefix(name, "least-partitions-"); ok {
		threshold, moves, _ := strings.Cut(both, "-")
		t, err := strconv.Atoi(threshold)
		m, err2 := strconv.Atoi(moves)
		if err == nil && err2 == nil {
			return LeastPartitions(t, m), false
		}
	}
	return nil, false
}
