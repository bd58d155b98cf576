//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

var long = flag.Bool("long", false, "repeat each fault five times, and print what it did to the calls")

// nodeVar is the environment variable that makes this test binary run as a node, so that the race detector also checks
// the nodes.
const nodeVar = "SFU_TEST_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(nodeVar) != "" {
		main()
		return
	}
	if flag.Parse(); !*long {
		pictureEvery = time.Second / 10 // a third of the usual packets, because most tests do not depend on the rate
	}
	agenttest.Overlap()
	leak.Main(m)
}

// trial is a fleet with calls.
type trial struct {
	testing.TB
	ctx      context.Context
	redis    *redistest.Server
	farm     *farm
	crowd    *crowd
	rooms    []string
	restored bool // the store lost its pins, so hostings continue with a greater epoch
	more     int  // the number of rooms that started during a fault but not because of it
	started  []*agentproc.Process
	causes   []string // parts of log lines that this trial itself causes
	failures []string
	table    []row
}

// row sums up the effects of one kind of fault over all repetitions.
type row struct {
	what         string
	times, moved int
	measure
}

// note logs a repetition and adds it to the table.
func (t *trial) note(what string, moved int, m measure) {
	t.Logf("%s: %d rooms moved; %v", what, moved, &m)
	t.add(what, moved, m)
}

func (t *trial) add(what string, moved int, m measure) {
	i := slices.IndexFunc(t.table, func(r row) bool { return r.what == what })
	if i < 0 {
		i, t.table = len(t.table), append(t.table, row{what: what})
	}
	r := &t.table[i]
	r.times++
	r.moved += moved
	r.gaveUp = append(r.gaveUp, m.gaveUp...)
	r.sound, r.image = append(r.sound, m.sound...), append(r.image, m.image...)
	for i := range r.parts {
		r.parts[i] = append(r.parts[i], m.parts[i]...)
	}
}

func (t *trial) print() {
	for _, r := range t.table {
		t.Logf("%s, %d times: %d rooms moved; %v", r.what, r.times, r.moved, &r.measure)
	}
}

// plan describes the nodes and rooms at the start of a trial.
type plan struct {
	nodes              string // one letter each
	rooms, subscribers int
	args               func(id string) []string
}

// try runs a trial. A process that gets no CPU for as long as a lease rightly loses its rooms. If a node's log shows
// that this happened, try ignores the failures and runs another trial.
func try(t *testing.T, p plan, run func(*trial)) {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take seconds")
	}
	const tries = 4
	for range tries {
		tr := &trial{TB: t, rooms: roomNames(p.rooms)}
		tr.run(p, run)
		if *long {
			tr.print()
		}
		if len(tr.failures) == 0 {
			return
		}
		starved := agenttest.Starved(tr.started, tr.causes...)
		if starved == "" {
			for _, failure := range tr.failures {
				t.Error(failure)
			}
			return
		}
		t.Logf("again, because a node had no CPU: %s: %q", starved, tr.failures)
	}
	t.Error("in no trial the nodes had enough CPU for their leases")
}

type fatal struct{}

func (t *trial) run(p plan, run func(*trial)) {
	t.redis = redistest.Start(t)
	exe, err := os.Executable()
	t.must(err)
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithCancel(context.Background())
	t.farm = newFarm(exe, t.redis.URL())
	t.farm.start = func(cmd *exec.Cmd) (*agentproc.Process, error) {
		cmd.Env = append(cmd.Env, nodeVar+"=1")
		process := agenttest.Start(t, cmd)
		t.started = append(t.started, process)
		return process, nil
	}
	t.crowd, err = newCrowd(t.farm.doors, true)
	t.must(err)
	defer func() {
		cancel()
		t.crowd.close()
		t.farm.close()
		t.farm.http.CloseIdleConnections()
		if r := recover(); r != nil && r != (fatal{}) {
			panic(r)
		}
	}()
	for _, id := range p.nodes {
		var more []string
		if p.args != nil {
			more = p.args(string(id))
		}
		t.must(t.farm.add(t.ctx, string(id), more...))
	}
	t.must(t.crowd.fill(t.ctx, p.rooms, p.subscribers))
	run(t)
}

// errorf records a failure.
func (t *trial) errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// must ends the trial if err is not nil.
func (t *trial) must(err error) {
	t.Helper()
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		t.errorf("%s:%d: %v", filepath.Base(file), line, err)
		panic(fatal{})
	}
}

// until waits for a condition.
func (t *trial) until(what string, condition func() error) {
	t.Helper()
	if err := until(t.ctx, condition); err != nil {
		t.must(fmt.Errorf("waited for %s: %w", what, err))
	}
}

func (t *trial) homes() map[string]reconnect.Directive {
	t.Helper()
	homes, err := t.farm.homes(t.ctx, t.rooms)
	t.must(err)
	return homes
}

// settled waits until all rooms live on running nodes, and all participants are connected there and play.
func (t *trial) settled(what string) map[string]reconnect.Directive {
	t.Helper()
	homes, err := t.farm.settled(t.ctx, t.crowd, t.rooms)
	if err != nil {
		t.must(fmt.Errorf("waited for %s: %w", what, err))
	}
	return homes
}

// hostings returns how many hostings have started on each node.
func (t *trial) hostings() map[string]int {
	t.Helper()
	n := make(map[string]int)
	for id := range t.farm.visible() {
		s, err := t.farm.stats(t.ctx, id)
		t.must(err)
		n[id] = s.Hostings
	}
	return n
}

// broken returns how often participants have lost their connection without having another one.
func (c *crowd) broken() (n int) {
	for _, b := range c.all() {
		b.mu.Lock()
		n += b.breaks
		b.mu.Unlock()
	}
	return n
}

// fault causes a fault, and checks its effect on the rooms. Each room that must leave its node gets a new node exactly
// once, and all other rooms stay.
func (t *trial) fault(what string, leaves func(home reconnect.Directive) bool, do func()) {
	t.Helper()
	before, hostings, began := t.homes(), t.hostings(), t.crowd.begin()
	do()
	after := t.settled(what)
	m := t.crowd.measured(began)
	t.note(what, moved(before, after), m)
	want := t.more
	t.more = 0
	for room, home := range before {
		switch now := after[room]; {
		case leaves(home):
			want++
			if now.To == home.To || now.Epoch <= home.Epoch {
				t.errorf("%s: %s was on %+v, and is on %+v", what, room, home, now)
			}
		case now.To != home.To || now.Epoch < home.Epoch || now.Epoch > home.Epoch && !t.restored:
			t.errorf("%s: %s has moved from %+v to %+v", what, room, home, now)
		}
	}
	for id, n := range t.hostings() {
		want -= n - hostings[id]
	}
	if want != 0 {
		t.errorf("%s: rooms that left began %d times less than once", what, want)
	}
	t.healthy(what, m)
}

// healthy checks conditions that must hold for all participants at any time.
func (t *trial) healthy(what string, m measure) {
	if len(m.gaveUp) > 0 {
		t.errorf("%s: clients gave up: %v", what, m.gaveUp)
	}
	if m.strays > 0 {
		t.errorf("%s: %d packets of other rooms", what, m.strays)
	}
}

func nothing(reconnect.Directive) bool { return false }

func on(id string) func(reconnect.Directive) bool {
	return func(home reconnect.Directive) bool { return string(home.To) == id }
}

// unbroken checks that no participant was without a connection during do.
func (t *trial) unbroken(what string, do func()) {
	t.Helper()
	before := t.crowd.broken()
	do()
	if n := t.crowd.broken() - before; n > 0 {
		t.errorf("%s: connections ended %d times before there was another one", what, n)
	}
}

func (t *trial) pass(d time.Duration) { wait(t.ctx, d) }
