package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

// simulation has the options of roost sim.
type simulation struct {
	trial          sim.Trial
	loss           float64       // percent
	delay, longest time.Duration // delay of packets; 0 means the default of the network
	network        string
	timings        cluster.Config
	seed           uint64
}

func (p *program) simCommand() *cobra.Command {
	o, out := new(simulation), new(session.Options)
	all := append(o.settings(), out.Output("json prints one object, with null if the nodes did not agree"))
	cmd := p.withSession(&cobra.Command{
		Use:   "sim [flags]",
		Short: "Size a cluster before you build it",
		Long: `Size a cluster before you build it: run the decisions of any number of agents in virtual time,
over a network that delays and loses packets. All nodes start at once and run for --for. Then one
joins, one leaves, and --crash nodes crash. The command prints false expiries (0 if the settings
suit the network), the oldest lease, traffic, and how fast nodes agreed. The same flags and seed
print the same result. The simulation omits CPU time and memberlist's own traffic.`,
		Example: `  roost sim --nodes 50 --loss 5
  roost sim --nodes 30 --network wan --crash 10 --for 1m
  roost sim --nodes 20 --heartbeat 1s --ttl 3s --for 30s --output json | jq .false_expiries`,
		Args: takes(),
	}, out, all, func(ctx context.Context, s *session.Session, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		m, err := p.simulate(ctx, o)
		if err != nil {
			return err
		}
		return o.print(s, m)
	})
	cmd.AddCommand(p.simRoomsCommand())
	return cmd
}

func (o *simulation) settings() []settings.Setting {
	c := &o.timings
	list := []settings.Setting{
		{Name: "nodes", Arg: "N", Default: "100", Set: settings.Number(&o.trial.Nodes, 2, lease.MaxNodes-1), Usage: "number of nodes at the start"},
		{Name: "loss", Arg: "PERCENT", Default: "0", Set: percent(&o.loss), Usage: "percentage of packets that the network loses"},
		{
			Name: "delay", Arg: "MIN-MAX", Set: o.setDelay,
			Usage: "a packet takes a random time in this range (default 1ms-3ms; wan 50ms-150ms)",
		},
		{
			Name: "for", Arg: "DURATION", Default: "2m", Set: settings.Duration(&o.trial.Rest),
			Usage: "virtual time during which no node joins or leaves",
		},
		{
			Name: "crash", Arg: "N", Default: "1", Set: settings.Number(&o.trial.Crash, 0, lease.MaxNodes),
			Usage: "number of nodes that crash at once, at the end",
		},
		{
			Name: "vanish", Arg: "bool", Set: settings.Bool(&o.trial.Vanish),
			Usage: "the hosts of these nodes vanish, too, so that nothing refuses connections",
		},
		{
			Name: "network", Arg: "lan|wan", Default: "lan", Set: settings.OneOf(&o.network, "lan", "wan"),
			Usage: "kind of network, which sets delays and timings",
		},
		{Name: "heartbeat", Arg: "DURATION", Set: settings.Duration(&c.HeartbeatInterval), Usage: "renew leases this often (default 2s; wan 5s)"},
		{Name: "ttl", Arg: "DURATION", Set: settings.Duration(&c.LeaseTTL), Usage: "a lease expires when it is this old (default 6s; wan 20s)"},
		{
			Name: "gossip-nodes", Arg: "N", Set: settings.Number(&c.GossipNodes, 1, cluster.MaxGossipNodes),
			Usage: "each gossip round sends to this many random nodes (default 3; wan 4)",
		},
		{
			Name: "seed", Arg: "N", Default: "1", Set: settings.Number(&o.seed, 0, math.MaxInt64),
			Usage: "selects delays, losses, and the nodes that leave and crash",
		},
	}
	for i := range list {
		list[i].FlagOnly = true // ROOST_TTL configures an agent
	}
	return list
}

// percent accepts a share of packets below 100 percent.
func percent(to *float64) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64); err != nil || !(*to >= 0 && *to <= 99) {
			return errors.New("want a percentage from 0 to 99")
		}
		return nil
	}
}

func (o *simulation) setDelay(v string) error {
	least, most, between := strings.Cut(v, "-")
	if !between {
		most = least
	}
	if settings.Duration(&o.delay)(least) != nil || settings.Duration(&o.longest)(most) != nil || o.longest < o.delay {
		return errors.New("want a duration such as 2ms, or two such as 1ms-3ms, the shorter one first")
	}
	return nil
}

// check fills in defaults and checks settings that depend on each other.
func (o *simulation) check() error {
	if o.trial.Crash >= o.trial.Nodes {
		return settings.UsageError(fmt.Sprintf("--crash %d: at most %d of %d nodes can crash, because one must see it",
			o.trial.Crash, o.trial.Nodes-1, o.trial.Nodes))
	}
	o.timings.ID = "any"
	least, most := time.Millisecond, 3*time.Millisecond
	if o.network == "wan" {
		o.timings.Network = cluster.WAN
		least, most = 50*time.Millisecond, 150*time.Millisecond
	}
	o.delay, o.longest = cmp.Or(o.delay, least), cmp.Or(o.longest, most)
	if err := o.timings.Validate(); err != nil {
		return settings.UsageError(strings.ReplaceAll(err.Error(), "cluster: ", ""))
	}
	o.timings = o.timings.WithDefaults()
	o.trial.Limit = max(time.Minute, 2*o.timings.LeaseTTL)
	return nil
}

// simulate runs the simulation. On a terminal, a line shows the progress.
func (p *program) simulate(ctx context.Context, o *simulation) (sim.Measurement, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := sim.New(sim.Options{
		Seed: o.seed, Delay: o.delay, Jitter: o.longest - o.delay, Loss: o.loss / 100,
		Config: o.configure,
	})
	show := func(string) {}
	if terminal := term.Of(p.stderr, p.getenv); terminal.Moves {
		begin, shown := time.Now(), time.Time{}
		show = func(phase string) {
			if time.Since(shown) < 200*time.Millisecond {
				return
			}
			shown = time.Now()
			text := fmt.Sprintf("%s: %.0f virtual s in %.0f s", phase, c.Elapsed().Seconds(), time.Since(begin).Seconds())
			terminal.Replace(p.stderr, term.TextLine(text))
		}
		defer terminal.Replace(p.stderr, nil)
	}
	o.trial.Tick = func(phase string) error {
		show(phase)
		return ctx.Err()
	}
	m, err := c.Measure(o.trial)
	if errors.Is(err, context.Canceled) {
		err = exitError(exitInterrupted)
	}
	return m, err
}

// configure sets the timings of a simulated node to those of an agent.
func (o *simulation) configure(c *node.Config) {
	t := o.timings
	c.HeartbeatInterval, c.LeaseTTL, c.MaxSkew = t.HeartbeatInterval, t.LeaseTTL, t.MaxSkew
	c.Debounce, c.StartupGrace, c.RejoinInterval = t.Debounce, t.StartupGrace, t.RejoinInterval
	c.GossipInterval, c.GossipNodes = t.GossipInterval, t.GossipNodes
}

// simulated is the JSON output.
type simulated struct {
	Nodes         int     `json:"nodes"`
	LossPercent   float64 `json:"loss_percent"`
	VirtualS      float64 `json:"virtual_s"` // simulated time at rest
	FalseExpiries int     `json:"false_expiries"`
	OldestAgeMS   int64   `json:"oldest_age_ms"`
	KBPerS        float64 `json:"kb_per_s"` // sent by each node
	PacketsPerS   float64 `json:"packets_per_s"`
	AgreeMS       struct {
		Start *int64 `json:"start"` // null if not within the limit
		Join  *int64 `json:"join"`
		Leave *int64 `json:"leave"`
		Crash *int64 `json:"crash"`
	} `json:"agree_ms"`
	Seed uint64 `json:"seed"`
}

func (o *simulation) print(s *session.Session, m sim.Measurement) error {
	if s.JSON {
		return s.PrintJSON(o.answer(m))
	}
	t := o.timings
	err := s.Say("%d nodes, %g %% loss, delay %v-%v, heartbeat %v, ttl %v, news to %d nodes each %v\n\n",
		o.trial.Nodes, o.loss, o.delay, o.longest, t.HeartbeatInterval, t.LeaseTTL, t.GossipNodes, t.GossipInterval)
	if err != nil {
		return err
	}
	return s.Table("MEASURED\tRESULT", func(row func(...any)) {
		row("false expiries", good(m.FalseExpiries == 0, fmt.Sprint(m.FalseExpiries)))
		row("oldest lease, at rest", m.OldestAge.Round(10*time.Millisecond))
		row("each node sends, at rest", fmt.Sprintf("%.1f kB/s in %.1f packets/s", m.Bytes/1000, m.Packets))
		row(fmt.Sprintf("all agree after %d start at once", o.trial.Nodes), o.took(m.Agree.Start))
		row("... after one joins", o.took(m.Agree.Join))
		row("... after one leaves", o.took(m.Agree.Leave))
		if o.trial.Crash > 0 {
			crash := "crash"
			if o.trial.Vanish {
				crash = "vanish"
			}
			row(fmt.Sprintf("... after %d %s", o.trial.Crash, crash), o.took(m.Agree.Crash))
		}
	}, fmt.Sprintf("\n%v at rest, seed %d\n", o.trial.Rest, o.seed))
}

func (o *simulation) took(d time.Duration) term.Toned {
	if d == sim.Never {
		return good(false, fmt.Sprintf("not within %.0f s", o.trial.Limit.Seconds()))
	}
	return term.Toned{Text: d.String()}
}

func good(is bool, text string) term.Toned {
	if is {
		return term.Toned{Text: text, Tone: term.Good}
	}
	return term.Toned{Text: text, Tone: term.Bad}
}

func (o *simulation) answer(m sim.Measurement) simulated {
	hundredths := func(f float64) float64 { return math.Round(100*f) / 100 }
	a := simulated{
		Nodes: o.trial.Nodes, LossPercent: o.loss, VirtualS: o.trial.Rest.Seconds(),
		FalseExpiries: m.FalseExpiries, OldestAgeMS: m.OldestAge.Milliseconds(),
		KBPerS: hundredths(m.Bytes / 1000), PacketsPerS: hundredths(m.Packets), Seed: o.seed,
	}
	for _, agree := range []struct {
		to   **int64
		took time.Duration
	}{
		{&a.AgreeMS.Start, m.Agree.Start},
		{&a.AgreeMS.Join, m.Agree.Join},
		{&a.AgreeMS.Leave, m.Agree.Leave},
		{&a.AgreeMS.Crash, m.Agree.Crash},
	} {
		if agree.took != sim.Never {
			*agree.to = new(agree.took.Milliseconds())
		}
	}
	return a
}
