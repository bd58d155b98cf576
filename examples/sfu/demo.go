package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/standin"
)

const demoRooms = 8

// demoRow is the format of a row in the demo's table: the fault, the number of rooms that moved, and the gaps
// in sound and pictures.
const demoRow = "%-42s %8s %9s %8s %11s %8s\n"

// fill starts calls with one publisher each, and waits until all bots play.
func (c *crowd) fill(ctx context.Context, rooms, subscribers int) error {
	return c.fillWith(ctx, roomNames(rooms), func(int) int { return subscribers })
}

func (c *crowd) fillWith(ctx context.Context, rooms []string, subscribers func(i int) int) error {
	const atOnce = 4 // limits concurrent handshakes, because they are slow
	errs, turns := make(chan error, len(rooms)), make(chan struct{}, atOnce)
	for i, room := range rooms {
		turns <- struct{}{}
		go func() {
			errs <- c.call(ctx, room, subscribers(i))
			<-turns
		}()
	}
	var err error
	for range rooms {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	return until(ctx, c.settled)
}

// call adds a publisher and subscribers to a room.
func (c *crowd) call(ctx context.Context, room string, subscribers int) error {
	err := c.join(ctx, room, true)
	for range subscribers {
		if err == nil {
			err = c.join(ctx, room, false)
		}
	}
	return err
}

// settled returns nil if each bot plays from its newest link.
func (c *crowd) settled() error {
	for _, b := range c.all() {
		if b.plays != nil && !b.playing() {
			return fmt.Errorf("a subscriber of %s plays nothing", b.room)
		}
	}
	return nil
}

// at returns nil if all bots are connected to the nodes of their rooms.
func (c *crowd) at(homes map[string]reconnect.Directive) error {
	for _, b := range c.all() {
		b.mu.Lock()
		newest, room := b.newest, b.route.room
		b.mu.Unlock()
		if home, ok := homes[room]; ok && (newest == nil || newest.home.To != home.To) {
			return fmt.Errorf("a participant of %s is not at %s", room, home.To)
		}
	}
	return c.settled()
}

// until calls condition repeatedly until it returns nil, or until ctx ends.
func until(ctx context.Context, condition func() error) error {
	const timeout, pause = time.Minute, 10 * time.Millisecond
	for end := time.Now().Add(timeout); ; wait(ctx, pause) {
		err := condition()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// playing reports whether the bot plays from its newest link.
func (b *bot) playing() bool {
	fresh := 200*time.Millisecond + pictureEvery
	b.mu.Lock()
	newest := b.newest
	b.mu.Unlock()
	b.plays.mu.Lock()
	defer b.plays.mu.Unlock()
	plays := func(k playback) bool { return k.link == newest && time.Since(k.at) < fresh }
	return newest != nil && plays(b.plays.sound) && plays(b.plays.image)
}

func roomNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("room-", i+1))
	}
	return names
}

// show is the state of a running demo.
type show struct {
	out   io.Writer
	farm  *farm
	crowd *crowd
	rooms []string

	mu     sync.Mutex
	doing  string
	faults []faultRow
}

func runDemo(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	redis := f.String("redis", "", "URL of a Redis (default: a stand-in in this process)")
	most := f.Int("room-max", 10, "maximum number of subscribers of a room on one node")
	listen := f.String("http", "127.0.0.1:0", "host:port to serve the page on")
	once := f.Bool("once", false, "exit after the last fault (default: keep the page and its nodes until Ctrl-C)")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *redis == "" {
		url, end, err := standin.Start()
		if err != nil {
			return err
		}
		defer end()
		*redis = url
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	farm := newFarm(exe, *redis)
	defer farm.close()
	farm.args = []string{"-room-max", strconv.Itoa(*most)}
	for _, id := range []string{"a", "b", "c"} {
		if err := farm.add(ctx, id); err != nil {
			return err
		}
	}
	crowd, err := newCrowd(farm.doors, true)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer crowd.close()
	defer stop()
	s := &show{out: out, farm: farm, crowd: crowd, rooms: roomNames(demoRooms)}
	addr, end, err := s.open(*listen)
	if err != nil {
		return err
	}
	defer end()
	_, _ = fmt.Fprintf(out, `Join a call yourself: open http://%s twice, and watch it move with its room.

3 nodes and %d rooms, each with a publisher and 2 subscribers. For each fault: how many rooms moved, and for
how long a subscriber heard and saw nothing. A sound packet arrives every 20 ms, a picture every 40 ms.

`, addr, demoRooms)
	_, _ = fmt.Fprint(out, strings.TrimRight(fmt.Sprintf(demoRow, "", "rooms", "no sound", "", "no picture", ""), " \n")+"\n")
	_, _ = fmt.Fprintf(out, demoRow, "fault", "moved", "median", "longest", "median", "longest")
	if err := crowd.fill(ctx, demoRooms, 2); err != nil {
		return err
	}
	if err := errors.Join(s.run(ctx), s.outgrow(ctx, *most)); err != nil || *once {
		return err
	}
	s.now("nothing more")
	_, _ = fmt.Fprintf(out, "\nhttp://%s and its nodes run until Ctrl-C.\n", addr)
	<-ctx.Done()
	return nil
}

func (s *show) now(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = "Now: " + doing + "."
}

// note prints the effect of a fault, and shows it on the page.
func (s *show) note(what string, moved int, m *measure) {
	const median, all = 50, 100
	_, _ = fmt.Fprintf(s.out, demoRow, what, fmt.Sprintf("%d of %d", moved, len(s.rooms)), short(percentile(m.sound, median)),
		short(percentile(m.sound, all)), short(percentile(m.image, median)), short(percentile(m.image, all)))
	if n := len(m.parts[0]); n > 0 {
		_, _ = fmt.Fprintf(s.out, "    %d clients reconnected: %s\n", n, m.longParts())
	}
	if n := len(m.gaveUp); n > 0 {
		_, _ = fmt.Fprintf(s.out, "    %d clients gave up, the first because: %v\n", n, m.gaveUp[0])
	}
	row := faultRow{What: what, Moved: moved, Rooms: len(s.rooms), Sound: three(m.sound), Picture: three(m.image), GaveUp: len(m.gaveUp)}
	for i, took := range m.parts {
		if len(took) > 0 {
			row.Parts = append(row.Parts, part{stepNames[i], percentile(took, median).Milliseconds()})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, row)
}

func (s *show) run(ctx context.Context) error {
	return errors.Join(
		s.fault(ctx, "no fault", 3*time.Second, func(string) error { return nil }),
		s.fault(ctx, "a node joins", time.Second, func(string) error { return s.farm.add(ctx, "d") }),
		s.fault(ctx, "kill -9, clients report it", 0, s.farm.kill),
		s.quietly(func() error { return s.fault(ctx, "kill -9, clients only ask", 0, s.farm.kill) }),
		s.fault(ctx, "a node joins", time.Second, func(string) error { return s.farm.add(ctx, "e") }),
		s.fault(ctx, "a node drains (SIGTERM)", 0, s.farm.drain),
		s.fault(ctx, "a node joins", time.Second, func(string) error { return s.farm.add(ctx, "f") }),
		s.fault(ctx, "pause of 9 s, longer than the lease (6 s)", 0, func(id string) error { return s.farm.pause(ctx, id, 9*time.Second) }),
	)
}

// outgrow starts a room with more subscribers than one node may serve, and then kills and drains nodes of
// that room.
func (s *show) outgrow(ctx context.Context, most int) error {
	const nodes = 3
	if err := s.crowd.call(ctx, "large", nodes*most); err != nil {
		return err
	}
	s.rooms = append(s.rooms, chain("large~2", 0)...)
	homes, err := s.farm.settled(ctx, s.crowd, s.rooms)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.out, "\nA room outgrows its node: %d subscribers on %d nodes. Streams that each node forwards:\n%s\n",
		nodes*most, nodes, s.loads(ctx))
	at := func(room string) string { return string(homes[room].To) }
	err = errors.Join(
		s.faultAt(ctx, "kill -9 of a relay", at("large~1"), 0, s.farm.kill),
		s.fault(ctx, "a node joins", time.Second, func(string) error { return s.farm.add(ctx, "g") }),
		s.faultAt(ctx, "the room's node drains", at("large"), 0, s.farm.drain),
	)
	_, _ = fmt.Fprintf(s.out, "Afterwards:\n%s\n", s.loads(ctx))
	return err
}

// loads returns a line for each node, with the number of streams that the node forwards and how many of them
// belong to the large room.
func (s *show) loads(ctx context.Context) string {
	var loads []string
	for _, id := range s.farm.ids() {
		node, err := s.farm.stats(ctx, id)
		if err != nil {
			return err.Error()
		}
		line := []string{fmt.Sprintf("    node %s: %d", id, node.Load)}
		for _, room := range chain("large~2", 0) {
			if load := node.Rooms[room]; load > 0 {
				line = append(line, fmt.Sprintf("%d of them for %s", load, room))
			}
		}
		loads = append(loads, strings.Join(line, ", "))
	}
	return strings.Join(loads, "\n")
}

func (s *show) quietly(f func() error) error {
	s.crowd.report.Store(false)
	defer s.crowd.report.Store(true)
	return f()
}

// fault applies a fault to the node with the most rooms, and prints the effect on the calls.
func (s *show) fault(ctx context.Context, what string, watch time.Duration, do func(id string) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.faultAt(ctx, what, s.farm.busiest(ctx), watch, do)
}

func (s *show) faultAt(ctx context.Context, what, id string, watch time.Duration, do func(id string) error) error {
	before, err := s.farm.homes(ctx, s.rooms)
	if err != nil {
		return err
	}
	s.now(what)
	began := s.crowd.begin()
	if err := do(id); err != nil {
		return err
	}
	wait(ctx, watch)
	after, err := s.farm.settled(ctx, s.crowd, s.rooms)
	if err != nil {
		return err
	}
	m := s.crowd.measured(began)
	s.note(what, moved(before, after), &m)
	return nil
}

// moved counts the rooms whose node has changed.
func moved(before, after map[string]reconnect.Directive) (n int) {
	for room, d := range before {
		if after[room].To != d.To {
			n++
		}
	}
	return n
}

// pause stops a process for a while, like a virtual machine that hangs.
func (f *farm) pause(ctx context.Context, id string, d time.Duration) error {
	n := f.node(id)
	f.hide(id, true)
	defer f.hide(id, false)
	if err := n.Pause(); err != nil {
		return err
	}
	wait(ctx, d)
	return n.Resume()
}

// hide keeps clients from asking a node, as a load balancer would.
func (f *farm) hide(id string, hidden bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[id]; n != nil {
		changed := *n
		changed.hidden = hidden
		f.nodes[id] = &changed
	}
}
