package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/internal/standin"
)

// Options configures a tour.
type Options struct {
	Nodes int    // number of agents at the start, 2 to 20
	HTTP  string // address of the dashboard and the API of an agent, on loopback; unused with Once
	Once  bool   // end after the last step instead of staying up
	Redis string // URL of the Redis in which rooms are pinned, may include a password; default: a stand-in in this process
	Seed  uint64 // picks the rooms and the nodes for events
	Out   io.Writer
	Exe   string // path of the roost binary; "" means the binary of this process
}

type tour struct {
	o        Options
	exe      string // the roost binary
	out      *printer
	web      *http.Client
	rng      *rand.Rand
	settings cluster.Config // of the agents
	began    time.Time
	nodes    []*node // all nodes that were ever started
	drained  *node
	cluster  string       // name of the cluster and of its keys in Redis, unique for this run
	redis    string       // URL, may include a password
	rooms    []string     // rooms placed by the hash
	parties  []party      // pinned rooms
	again    atomic.Int64 // repeated questions
	front    *front       // nil with Once
	seen     []view       // views of all agents after the last step
	step     int
	rows     []row
	checks   int
	broken   []string
}

// Run takes all steps of the tour and returns an error that names the failed checks. Unless Once is set, Run
// keeps the cluster up until ctx ends. All agents have ended when Run returns.
func Run(ctx context.Context, o Options) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("tour: find the roost binary: %w", err)
	}
	t := &tour{
		o:        o,
		exe:      cmp.Or(o.Exe, own),
		redis:    o.Redis,
		cluster:  fmt.Sprintf("demo-%08x", rand.Uint32()),
		out:      newPrinter(o.Out),
		rng:      rand.New(rand.NewPCG(o.Seed, 0)),
		web:      &http.Client{Transport: &http.Transport{}},
		settings: cluster.Config{}.WithDefaults(),
		began:    time.Now(),
	}
	if t.redis == "" {
		url, stop, err := standin.Start()
		if err != nil {
			return fmt.Errorf("tour: %w", err)
		}
		defer stop()
		t.redis = url
	}
	if !o.Once {
		if t.front, err = openFront(ctx, o.HTTP, dashboard.Info{Cluster: t.cluster, Rooms: true, Metrics: true, Demo: true}); err != nil {
			return err
		}
		defer t.front.close()
	}
	defer t.web.CloseIdleConnections()
	defer t.stop(ctx)
	if err := t.walk(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("tour: interrupted: %w", ctx.Err())
		}
		t.explain(err)
		return err
	}
	err = t.verdict()
	if !o.Once {
		t.stay(ctx)
	}
	return err
}

func (t *tour) walk(ctx context.Context) error {
	t.out.line("%s", t.out.paint(term.Heading, "roost: every node knows which node owns which room"))
	t.out.line("These are real agents on this machine, with production timings: a heartbeat every")
	t.out.line("%s, a lease of %s, %s partitions.",
		whole(t.settings.HeartbeatInterval), whole(t.settings.LeaseTTL), count(t.settings.Partitions))
	if t.front != nil {
		t.out.line("Watch it at http://%s/", t.front.addr)
	}
	for _, step := range t.steps() {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.step++
		if err := t.take(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// take runs a step. If an agent's process ends during the step, take returns that error, because other errors
// follow from it.
func (t *tour) take(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTime, fmt.Errorf("gave up after %v", stepTime))
	defer cancel()
	err := step(ctx)
	if missing := t.missing(); err != nil && missing != nil {
		return missing
	}
	return err
}

// conclude prints the checks of a step and counts those that held.
func (t *tour) conclude(checks ...check) (held int) {
	for _, c := range checks {
		t.out.check(c)
		t.checks++
		if c.held() {
			held++
		} else {
			t.broken = append(t.broken, fmt.Sprintf("step %d: %s: %s", t.step, c.what, c.problem))
		}
	}
	return held
}

// verdict prints the summary. If checks failed, verdict returns an error that names them. If the output
// failed, verdict returns the first error.
func (t *tour) verdict() error {
	t.out.summary(t.rows)
	t.out.line("")
	took := time.Since(t.began).Seconds()
	if len(t.broken) > 0 {
		t.out.line("%s", t.out.paint(term.Bad, fmt.Sprintf("BROKEN: %d of %d checks failed, in %.0f s.", len(t.broken), t.checks, took)))
		return fmt.Errorf("tour: %d of %d checks failed:\n  %s", len(t.broken), t.checks, strings.Join(t.broken, "\n  "))
	}
	t.out.line("%s", t.out.paint(term.Heading, fmt.Sprintf("All %d checks held, in %.0f s.", t.checks, took)))
	if t.out.err != nil {
		return fmt.Errorf("tour: %w", t.out.err)
	}
	return nil
}

// explain prints the last lines of the log of the agent that caused an error.
func (t *tour) explain(err error) {
	agent, ok := errors.AsType[*agentError](err)
	if !ok {
		return
	}
	t.out.line("")
	t.out.line("%s", t.out.paint(term.Bad, fmt.Sprintf("The last lines that %s logged:", agent.node.id)))
	for l := range strings.Lines(agent.node.Log.String()) {
		t.out.line("   %s", strings.TrimSpace(l))
	}
}
