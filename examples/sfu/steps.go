package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// steps records when a connection of a bot made progress.
type steps struct {
	mu                                                   sync.Mutex
	lost, found, began, answered, ice, dtls, packet, key time.Time
}

// at sets step to the current time if it is not set yet, and reports whether it did.
func (s *steps) at(step *time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = step.IsZero(); first {
		*step = time.Now()
	}
	return first
}

// set records when the old connection was lost and when the new node was found.
func (s *steps) set(lost, found time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost, s.found = lost, found
}

// stepNames are the parts of the time from a fault to the next picture.
var stepNames = [...]string{"detection", "failover", "wait", "signalling", "ICE", "DTLS", "first packet", "first keyframe"}

// parts returns how long each part took after a fault. ok reports whether the connection was made after the
// fault.
func (s *steps) parts(fault time.Time) (took [len(stepNames)]time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.Before(fault) || s.lost.Before(fault) || s.key.IsZero() || s.packet.IsZero() {
		return took, false
	}
	last := fault
	for i, at := range []time.Time{s.lost, s.found, s.began, s.answered, s.ice, s.dtls, s.packet, s.key} {
		took[i] = max(0, at.Sub(last))
		if at.After(last) {
			last = at
		}
	}
	return took, true
}

// measure is the effect of a fault on the calls.
type measure struct {
	sound, image []time.Duration // longest gap of each subscriber
	parts        [len(stepNames)][]time.Duration
	strays       int // packets of other rooms
	gaveUp       []error
}

// begin starts a measurement.
func (c *crowd) begin() time.Time {
	for _, b := range c.all() {
		if b.plays != nil {
			b.plays.reset()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = nil
	return time.Now()
}

func (c *crowd) all() []*bot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bots)
}

// measured returns the effects since a fault.
func (c *crowd) measured(fault time.Time) measure {
	return c.measuredOf(fault, func(*bot) bool { return true })
}

// measuredOf is like measured, but includes only the gaps of the bots for which of returns true.
func (c *crowd) measuredOf(fault time.Time, of func(*bot) bool) (m measure) {
	now := time.Now()
	for _, b := range c.all() {
		if b.plays == nil {
			continue
		}
		b.plays.mu.Lock()
		m.strays += b.plays.strays
		b.plays.mu.Unlock()
		if !of(b) {
			continue
		}
		sound, image := b.plays.gaps(now)
		m.sound, m.image = append(m.sound, sound), append(m.image, image)
		b.mu.Lock()
		l := b.newest
		b.mu.Unlock()
		if took, ok := l.steps.parts(fault); ok {
			for i, d := range took {
				m.parts[i] = append(m.parts[i], d)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.gaveUp = slices.Clone(c.gaveUp)
	return m
}

// percentile returns the value that p percent of the values do not exceed.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	const whole = 100
	return sorted[min(len(sorted)-1, len(sorted)*p/whole)]
}

// String returns the gaps, and the medians of the parts.
func (m *measure) String() string {
	text := fmt.Sprintf("sound %s, picture %s", spreadOf(m.sound), spreadOf(m.image))
	if len(m.parts[0]) == 0 {
		return text
	}
	return fmt.Sprintf("%s\n    %d connections: %s", text, len(m.parts[0]), m.longParts())
}

// longParts lists the parts whose median is 10 ms or more.
func (m *measure) longParts() string {
	const median, least = 50, 10 * time.Millisecond
	var parts []string
	for i, name := range stepNames {
		if took := percentile(m.parts[i], median); took >= least {
			parts = append(parts, fmt.Sprint(name, " ", short(took)))
		}
	}
	return strings.Join(parts, ", ")
}

// spreadOf formats the 50th and 95th percentiles and the maximum.
func spreadOf(d []time.Duration) string {
	const median, most, all = 50, 95, 100
	return fmt.Sprintf("%s %s %s", short(percentile(d, median)), short(percentile(d, most)), short(percentile(d, all)))
}

func short(d time.Duration) string {
	const digits = time.Millisecond
	return cmp.Or(d.Round(digits), 0).String()
}
