package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/cmd/roost/internal/serve"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/internal/agenturl"
	"github.com/spf13/cobra"
)

func (p *program) proxyCommand() *cobra.Command {
	o := new(proxyOptions)
	return p.withSettings(&cobra.Command{
		Use:   "proxy --key-from path:N|query:NAME|header:NAME|cookie:NAME [flags]",
		Short: "Send HTTP requests to the server that owns their key",
		Long: `Send each HTTP request to the server that owns its key, at the --api-addr of the owner's agent.
The proxy is not a cluster member: it follows the table of one of --agents. It retries a request
for --retry-timeout if it reached no server or the server rejected it with 421. With --rooms, it
resolves each key as a room and pins new rooms. It speaks plain HTTP, so put it behind something
that terminates TLS. /readyz on --probe fails until the first table arrives.`,
		Example: `  roost proxy --key-from path:2                                 /rooms/standup/join: standup
  roost proxy --key-from header:X-Room --listen 10.0.0.9:8080 --agents 10.0.0.1:8401,10.0.0.2:8401`,
		Args: takes(),
	}, o.settings(), func(ctx context.Context) error {
		if o.warning != "" {
			term.Complain(p.stderr, "warning: "+o.warning)
		}
		if err := settings.Problems(o.problems()); err != nil {
			return err
		}
		log, endLog := serve.NewLogger(p.stderr, o.logFormat, slog.LevelInfo)
		defer endLog()
		o.Log, o.Agents.Log = log, log
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal kills the process
		defer stop()
		return o.Run(ctx)
	})
}

type proxyOptions struct {
	serve.Proxy

	warning, logFormat string
	insecure           bool
}

func (o *proxyOptions) settings() []settings.Setting {
	return []settings.Setting{
		{
			Name: "key-from", Arg: "WHERE", Set: o.setKey,
			Usage: "where the key is: path:2 (the second segment), query:NAME, header:NAME or cookie:NAME",
		},
		{
			Name: "listen", Arg: "HOST:PORT", Default: "127.0.0.1:8080", Set: address(&o.Listen),
			Usage: "accept requests here; port 0 selects a free port",
		},
		{Name: "probe", Arg: "HOST:PORT", Set: address(&o.Probe), Usage: "serve /healthz, and /readyz once there is a table, here"},
		{
			Name: "agents", Arg: "HOST:PORT,...", List: true, Default: clusterhttp.DefaultBase, Set: o.addAgent,
			Usage: "HTTP addresses of two or three agents to follow, with https:// in front if they have --http-tls-cert",
		},
		{
			Name: "scope", Arg: "NAME", FlagOnly: true, Set: settings.Nonempty(&o.Agents.Scope),
			Usage: "send requests to the owners in this scope instead of those among all members: see --scope of roost agent",
		},
		{Name: "rooms", Arg: "bool", Set: settings.Bool(&o.Rooms), Usage: "keys are rooms: send each request where its room is pinned"},
		{Name: "token-file", Arg: "FILE", Set: o.readToken, Usage: "bearer token, if the agents require one for reads, or for --rooms"},
		{Name: "insecure", Arg: "bool", Set: settings.Bool(&o.insecure), Usage: "send the token over plain http to another machine"},
		{
			Name: "close-moved", Arg: "bool", Set: settings.Bool(&o.CloseMoved),
			Usage: "close a WebSocket with status 1012 when its key has moved to another server, so that its client reconnects",
		},
		{
			Name: "redirect", Arg: "bool", Set: settings.Bool(&o.Redirect),
			Usage: "answer 307 with the owner's address; clients must be able to reach the servers",
		},
		{
			Name: "scheme", Arg: "http|https", Default: "http", Set: settings.OneOf(&o.Scheme, "http", "https"),
			Usage: "scheme for servers whose address has none",
		},
		{
			Name: "retry-timeout", Arg: "DURATION", Default: "5s", Set: settings.Duration(&o.RetryTimeout),
			Usage: "keep retrying a request for this long",
		},
		{
			Name: "answer-within", Arg: "DURATION", Set: settings.Duration(&o.AnswerWithin),
			Usage: "give up on a server that sends no response headers for this long (default: wait)",
		},
		{
			Name: "log-format", Arg: "text|json", Default: "text", Set: settings.OneOf(&o.logFormat, "text", "json"),
			Usage: "format of the log on standard error",
		},
	}
}

func (o *proxyOptions) setKey(v string) (err error) {
	o.Key, err = httpproxy.ParseKey(v)
	return err
}

// address accepts the host:port of a listener.
func address(to *string) func(string) error {
	return func(v string) error {
		*to = v
		return settings.HostPort(v)
	}
}

func (o *proxyOptions) addAgent(v string) error {
	o.Agents.Agents = append(o.Agents.Agents, v)
	_, err := agenturl.Parse(v)
	return err
}

func (o *proxyOptions) readToken(path string) (err error) {
	o.Agents.Token, o.warning, err = settings.Token(path)
	return err
}

// problems returns conflicts between the options, and missing options.
func (o *proxyOptions) problems() (problems []error) {
	if o.Key == nil {
		problems = append(problems, errors.New("--key-from is missing: say where a request has its key, for example path:2"))
	}
	if o.Rooms && o.Agents.Scope != "" {
		problems = append(problems, fmt.Errorf("--scope %q and --rooms: rooms can be pinned to any member, so use only one of these flags", o.Agents.Scope))
	}
	for _, agent := range o.Agents.Agents {
		if o.Agents.Token != "" && !o.insecure && !agenturl.Private(agent) {
			problems = append(problems,
				fmt.Errorf("--agents %q: the network could read the token: use https:// (the agent has --http-tls-cert), or --insecure", agent))
		}
	}
	return problems
}
