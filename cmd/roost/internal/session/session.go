// Package session implements the communication of a command with an agent. The package provides the client of the HTTP
// API, output as a table or as JSON, and views that update when the cluster changes.
package session

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/internal/agenturl"
)

// Options are the options of all commands that call an agent.
type Options struct {
	addr, output, token, warning string
	scope                        string
	ca, cert, key                string // paths of files
	insecure                     bool
	timeout                      time.Duration
}

// Settings returns the settings of these options.
func (o *Options) Settings() []settings.Setting {
	return []settings.Setting{
		{
			Name: "addr", Arg: "HOST:PORT", Default: clusterhttp.DefaultBase, Set: o.setAddr,
			Usage: "HTTP address of the agent; starts with https:// if the agent has --http-tls-cert",
		},
		{Name: "token-file", Arg: "FILE", Set: o.readToken, Usage: "bearer token, if the agent requires one"},
		{
			Name: "ca", Arg: "FILE", Set: settings.Nonempty(&o.ca),
			Usage: "trust only the CAs in FILE (default: the CAs that this machine trusts)",
		},
		{Name: "cert", Arg: "FILE", Set: settings.Nonempty(&o.cert), Usage: "this client's certificate, if the agent has --http-client-ca"},
		{Name: "cert-key", Arg: "FILE", Set: settings.Nonempty(&o.key), Usage: "private key of --cert"},
		{Name: "insecure", Arg: "bool", Set: settings.Bool(&o.insecure), Usage: "allow sending the token over plain http to another machine"},
		o.Output("json prints the whole answer, one object per line"),
		{Name: "timeout", Arg: "DURATION", Default: "20s", Set: settings.Duration(&o.timeout), Usage: "stop waiting for an answer after this time"},
	}
}

// Output returns the setting for the output format.
func (o *Options) Output(usage string) settings.Setting {
	return settings.Setting{Name: "output", Arg: "table|json", Default: "table", Set: settings.OneOf(&o.output, "table", "json"), Usage: usage}
}

// Scope returns the setting for commands that ask about owners. --scope has no environment variable, because
// ROOST_SCOPE configures an agent.
func (o *Options) Scope() settings.Setting {
	return settings.Setting{
		Name: "scope", Arg: "NAME", FlagOnly: true, Set: settings.Nonempty(&o.scope),
		Usage: "ask about this scope instead of all members: see --scope of roost agent",
	}
}

func (o *Options) readToken(path string) (err error) {
	o.token, o.warning, err = settings.Token(path)
	return err
}

// setAddr accepts host:port, or a URL for an agent behind a proxy.
func (o *Options) setAddr(v string) error {
	o.addr = v
	if u, err := url.Parse(v); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		return nil
	}
	if settings.HostPort(v) != nil {
		return errors.New("want HOST:PORT or a URL")
	}
	return nil
}

// Session is a command's connection to an agent and to the user.
type Session struct {
	*clusterhttp.Client
	Addr     string // address of the agent, for messages
	JSON     bool
	Timeout  time.Duration
	Term     term.Terminal // of Out
	Out, Err io.Writer

	errTerm  term.Terminal
	options  *Options
	withheld string // why the token is not sent to the agent
}

// Open creates a session with the agent that the options name. The session connects when it is first used.
func (o *Options) Open(list []settings.Setting, from settings.Sources, stdout, stderr io.Writer) (*Session, error) {
	err := settings.Resolve(list, from)
	if o.warning != "" {
		term.Complain(stderr, "warning: "+o.warning)
	}
	var transport *http.Client
	if err == nil {
		transport, err = o.transport()
	}
	return &Session{
		Client: &clusterhttp.Client{Base: o.addr, Token: o.token, Scope: o.scope, HTTP: transport},
		Addr:   agenturl.Shown(o.addr), JSON: o.output == "json", Timeout: o.timeout,
		Out: stdout, Err: stderr, Term: term.Of(stdout, from.Getenv), options: o, errTerm: term.Of(stderr, from.Getenv),
	}, err
}

// At returns a session with another agent, whose URL was named in an answer. The session does not use the token if the
// answer is not trusted, if someone on the network could read the token, or if the URL is on this machine but the agent
// of s is not.
func (s *Session) At(base string, trusted bool) *Session {
	other, client := *s, *s.Client
	other.Client, other.Addr, client.Base = &client, agenturl.Shown(base), base
	switch {
	case s.Token == "":
	case s.options.exposed(base):
		other.withheld = "which the network could read on its way there: see --insecure"
	case !trusted:
		other.withheld = "because only agents without the token report its address: ask it directly with --addr"
	case s.Elsewhere(base):
		other.withheld = "because its reported address is on this machine: ask it directly with --addr"
	}
	if other.withheld != "" {
		client.Token = ""
	}
	return &other
}

// Withheld returns the reason why no secret may be sent to the agent, or "". The reason is either the reason why the
// token is not sent, or that someone on the network could read the secret. The text is the continuation of a sentence.
func (s *Session) Withheld() string {
	if s.withheld == "" && !s.options.insecure && !agenturl.Private(s.Base) {
		return "which the network could read on its way there: use https:// (the agent has --http-tls-cert), or --insecure"
	}
	return s.withheld
}

// Elsewhere reports whether an address that the agent of s has reported is on another machine. This is the case if the
// address is a loopback address and the agent is not on this machine.
func (s *Session) Elsewhere(addr string) bool { return here(addr) && !here(s.Base) }

// here reports whether an address is only reachable from this machine.
func here(addr string) bool {
	base, err := agenturl.Parse(addr)
	if err != nil {
		return false
	}
	u, _ := url.Parse(base) // cannot fail: it was parsed before
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.IsLoopback() || ip.Unmap().IsUnspecified())
}

// exposed reports whether someone on the network could read a token on its way to addr.
func (o *Options) exposed(addr string) bool {
	return o.token != "" && !o.insecure && !agenturl.Private(addr)
}

// transport returns the HTTP client, or a UsageError.
func (o *Options) transport() (_ *http.Client, err error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	t.MaxIdleConns = 0 // members --all --watch repeatedly asks any number of agents
	problems := o.problems()
	if o.ca != "" {
		if t.TLSClientConfig.RootCAs, err = settings.CertPool(o.ca); err != nil {
			problems = append(problems, fmt.Errorf("--ca: %w", err))
		}
	}
	if o.cert != "" && o.key != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			problems = append(problems, fmt.Errorf("--cert: %w", err))
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: t}, settings.Problems(problems)
}

// problems returns the conflicts between the options.
func (o *Options) problems() (problems []error) {
	if (o.cert == "") != (o.key == "") {
		problems = append(problems, errors.New("--cert and --cert-key belong together"))
	}
	if strings.HasPrefix(o.addr, "https://") {
		return problems
	}
	if o.ca != "" || o.cert != "" {
		problems = append(problems, fmt.Errorf("--addr %q: certificates need https:// in front of the address", o.addr))
	}
	if o.exposed(o.addr) {
		problems = append(problems,
			fmt.Errorf("--addr %q: the network could read the token: use https:// (the agent has --http-tls-cert), or --insecure", o.addr))
	}
	return problems
}

// Bound limits a call to the time that the user allows with --timeout.
func (s *Session) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Timeout)
}

// Progress returns a line that shows the progress of long work on standard error.
func (s *Session) Progress() *term.Progress { return &term.Progress{Term: s.errTerm, Out: s.Err} }

// PrintJSON prints v as JSON on one line.
func (s *Session) PrintJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(b) { // as term.Harmless, but with JSON escapes
		if strconv.IsPrint(r) || r > math.MaxUint16 {
			text.WriteRune(r)
		} else {
			_, _ = fmt.Fprintf(&text, `\u%04x`, r)
		}
	}
	_, err = io.WriteString(s.Out, text.String()+"\n")
	return err
}

// Say prints formatted text for people.
func (s *Session) Say(format string, args ...any) error {
	return s.PrintLines(term.TextLines(fmt.Sprintf(format, args...)))
}

// Answer returns err if it is not nil. If err is nil, Answer prints the answer as JSON or as the given
// sentence.
func (s *Session) Answer(v any, err error, sentence func() string) error {
	switch {
	case err != nil:
		return err
	case s.JSON:
		return s.PrintJSON(v)
	}
	return s.Say("%s", sentence())
}

// PrintLines prints lines.
func (s *Session) PrintLines(lines []term.Line) error {
	_, err := io.WriteString(s.Out, term.Text(lines, s.Term.Colours, "\n"))
	return err
}

// Table prints a header, the rows that fill adds, and the text below.
func (s *Session) Table(header string, fill func(row func(cells ...any)), below ...string) error {
	columns, _ := s.Term.Size()
	return s.PrintLines(term.Page(header, fill, below...)(columns))
}

// Explain returns an error that tells the user what to do about err.
func (s *Session) Explain(err error) error {
	var problem *clusterhttp.Problem
	var unreachable *net.OpError
	text := strings.ReplaceAll(err.Error(), "clusterhttp: ", "")
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		text += "\ngive the CA of the agent's certificate with --ca, and use an --addr with a name from the certificate"
	case errors.As(err, &problem) && problem.Code == clusterhttp.CodeUnauthorized:
		text = "the agent at " + s.Addr + " requires a " + s.missing(problem)
	case errors.As(err, &problem):
		text = problem.Message // the code is for programs
	case errors.As(err, &unreachable) && unreachable.Op != "remote error":
		text = fmt.Sprintf("no agent answers at %s: %v\nstart an agent with `roost agent`, or name the HTTP address of another agent with --addr or ROOST_ADDR",
			s.Addr, unreachable)
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("no answer from %s within %v\n"+
			"its process may be paused, or its machine out of CPU or cut off; if not, allow more time with --timeout",
			s.Addr, s.Timeout)
	}
	return errors.New(agenturl.Redacted(text))
}

// missing describes what the agent requires from this client.
func (s *Session) missing(p *clusterhttp.Problem) string {
	switch {
	case strings.Contains(p.Message, "client certificate"):
		return "certificate from the CA in its --http-client-ca; give one with --cert and --cert-key"
	case s.withheld != "":
		return "token, " + s.withheld
	case s.Token != "":
		return "token, and this token is wrong; give the right one with --token-file"
	default:
		return "token; give it with --token-file or ROOST_TOKEN_FILE"
	}
}

// Absent returns the answer of an agent that runs but is not a member, or nil.
func Absent(err error) *clusterhttp.Problem {
	p, ok := errors.AsType[*clusterhttp.Problem](err)
	if ok && (p.Code == clusterhttp.CodeNotReady || p.Code == clusterhttp.CodeClosed) {
		return p
	}
	return nil
}
