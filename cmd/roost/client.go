package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// clientOptions is what the commands that speak to an agent have in common.
type clientOptions struct {
	addr      string
	tokenFile string
	output    string
	timeout   time.Duration
	number    int // of roost owners
	node      string
	limit     int
	size      int
	plan      planOptions
	watch     bool
	every     time.Duration
	over      time.Duration // of roost doctor
}

func clientSettings() []setting[clientOptions] {
	type o = clientOptions
	return []setting[o]{
		{
			name: "addr", arg: "HOST:PORT", def: clusterhttp.DefaultBase, usage: "where the agent serves HTTP",
			apply: func(t *o, v string) error { t.addr = v; return checkAddr(v) },
		},
		{
			name: "token-file", arg: "FILE", usage: "bearer token, if the agent asks for one",
			apply: setNonempty(func(t *o) *string { return &t.tokenFile }),
		},
		outputSetting("json prints the answer in full, one object a line"),
		{
			name: "timeout", arg: "DURATION", def: "20s", usage: "give up on an answer after this time",
			apply: setDuration(func(t *o) *time.Duration { return &t.timeout }),
		},
	}
}

func outputSetting(usage string) setting[clientOptions] {
	return setting[clientOptions]{
		name: "output", arg: "table|json", def: "table", usage: usage,
		apply: func(t *clientOptions, v string) error { t.output = v; return oneOf(v, "table", "json") },
	}
}

// checkAddr takes host:port, or a URL for agents behind a proxy.
func checkAddr(v string) error {
	if u, err := url.Parse(v); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		return nil
	}
	if checkHostPort(v) != nil {
		return errors.New("want HOST:PORT or a URL")
	}
	return nil
}

// session is one command's conversation with an agent.
type session struct {
	*clusterhttp.Client
	clientOptions
	out, fault io.Writer
	term       terminal // where out goes
	json       bool
	last       appended
}

// clientCommand completes a command that speaks to an agent: it gets the common
// flags and some of its own, and ask for what it does.
func (p *program) clientCommand(
	cmd *cobra.Command,
	ask func(ctx context.Context, s *session, args []string) error,
	own ...setting[clientOptions],
) *cobra.Command {
	settings := append(own, clientSettings()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := p.session(cmd.Flags(), settings)
		if err != nil {
			return err
		}
		return explain(ask(cmd.Context(), s, args), s.clientOptions)
	}
	addFlags(cmd, settings)
	cmd.Flags().SortFlags = false
	return cmd
}

// session begins a conversation with the agent that the settings name.
func (p *program) session(flags *pflag.FlagSet, settings []setting[clientOptions]) (*session, error) {
	var o clientOptions
	origins, faults := resolve(&o, settings, layers{flags: flags, getenv: p.getenv}, nil)
	s := &session{
		Client: &clusterhttp.Client{Base: o.addr}, clientOptions: o,
		out: p.stdout, fault: p.stderr, term: p.terminal(), json: o.output == "json",
	}
	s.addr = redacted(o.addr) // from here on it is only shown
	if o.tokenFile != "" {
		token, err := p.readToken(o.tokenFile)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", origins["token-file"].text, err))
		}
		s.Token = token
	}
	return s, faulty(faults)
}

func (p *program) readToken(path string) (string, error) {
	b, warning, err := readSecret(path)
	if warning != "" {
		complain(p.stderr, "warning: "+warning)
	}
	if err != nil {
		return "", err
	}
	return decodeToken(b)
}

// bound gives a call the time that the user allows.
func (s *session) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// printJSON prints one object a line.
func (s *session) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(b) { // what harmless escapes, in the way of JSON
		if strconv.IsPrint(r) || r > math.MaxUint16 {
			text.WriteRune(r)
		} else {
			_, _ = fmt.Fprintf(&text, `\u%04x`, r)
		}
	}
	_, err = io.WriteString(s.out, text.String()+"\n")
	return err
}

// say prints lines for people.
func (s *session) say(format string, args ...any) error {
	return s.printLines(textLines(fmt.Sprintf(format, args...)))
}

// finish returns err, or prints v as JSON.
func (s *session) finish(v any, err error) error {
	if err != nil {
		return err
	}
	return s.printJSON(v)
}

// explain adds to an error what the user can do about it here.
func explain(err error, o clientOptions) error {
	if _, told := errors.AsType[exitError](err); err == nil || told || errors.Is(err, errUsage) {
		return err
	}
	text := strings.ReplaceAll(err.Error(), "clusterhttp: ", "")
	var problem *clusterhttp.Problem
	var unreachable *net.OpError
	switch {
	case errors.As(err, &problem) && problem.Code == clusterhttp.CodeUnauthorized:
		text = "the agent at " + o.addr + " asks for a token, and this is not it; give it with --token-file"
		if o.tokenFile == "" {
			text = "the agent at " + o.addr + " asks for a token; give it with --token-file or ROOST_TOKEN_FILE"
		}
	case errors.As(err, &problem):
		text = problem.Message // the code is for programs
	case errors.As(err, &unreachable):
		text = fmt.Sprintf("no agent answers at %s: %v\nstart one with `roost agent`, or say with --addr or ROOST_ADDR where one serves HTTP",
			o.addr, unreachable)
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("no answer from %s within %v\nits process may be stopped, or its machine starved or cut off; else allow more with --timeout", o.addr, o.timeout)
	}
	return errors.New(redacted(text))
}
