package routing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/agenturl"
)

// Config configures a Client.
type Config struct {
	// Agents are HTTP addresses of agents. Each address is a host:port or a URL. If the API is mounted below
	// a path, the URL includes that path. The Client follows one agent at a time, so two or three addresses
	// are enough. Required.
	Agents []string

	// Scope, if set, is the name of a scope of the agents (cluster.Agent.Scope, or roost agent --scope). The
	// Client then follows the table of this scope instead of the table of all members. If an agent does not
	// have the scope, the Client treats it as failed and tries the next agent. Calls about rooms ignore the
	// scope.
	Scope string

	// Token is the bearer token of each request. Without https, anyone on the network can read the token.
	Token string

	// HTTP sends the requests. The Timeout of HTTP must be 0, because a timeout would end every stream. The
	// Client follows redirects only if HTTP has a CheckRedirect. The default HTTP client stops connecting
	// after IdleTimeout. The default client closes an HTTP/2 connection that has been silent for IdleTimeout
	// and then does not answer a ping within 10 s.
	HTTP *http.Client

	// IdleTimeout is how long the agent may be silent before the Client also tries another agent. An agent
	// that has no changes to send confirms the table three times per IdleTimeout. 300 ms to 3 minutes;
	// default 1 s.
	IdleTimeout time.Duration

	// Log receives the log. Default slog.Default().
	Log *slog.Logger
}

const (
	defaultIdle = time.Second
	leastIdle   = 300 * time.Millisecond
	mostIdle    = 3 * time.Minute

	// pingTime is how long an HTTP/2 connection may leave a ping unanswered. Without pings, the Client would
	// use a dead connection for all attempts to reach its agent, for many minutes. The streams of rooms
	// survive a pause of the agent's process if it is shorter than pingTime.
	pingTime = 10 * time.Second
)

// validate returns all problems of the configuration.
func (c Config) validate() error {
	var problems []error
	if len(c.Agents) == 0 {
		problems = append(problems, errors.New("routing: Agents is empty: name the HTTP address of at least one agent"))
	}
	for _, a := range c.Agents {
		if _, err := agenturl.Parse(a); err != nil {
			problems = append(problems, fmt.Errorf("routing: Agents: %w", err))
		}
	}
	if c.IdleTimeout != 0 && (c.IdleTimeout < leastIdle || c.IdleTimeout > mostIdle) {
		problems = append(problems, fmt.Errorf("routing: IdleTimeout is %v; it must be %v to %v", c.IdleTimeout, leastIdle, mostIdle))
	}
	if c.HTTP != nil && c.HTTP.Timeout != 0 {
		problems = append(problems, fmt.Errorf("routing: HTTP has a Timeout of %v, which would end every stream; it must be 0", c.HTTP.Timeout))
	}
	return errors.Join(problems...)
}

// withDefaults fills in the defaults. If withDefaults creates a transport, it also returns the transport.
func (c Config) withDefaults() (_ Config, own *http.Transport) {
	c.Agents = slices.Clone(c.Agents)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, defaultIdle)
	if c.HTTP == nil {
		own = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: c.IdleTimeout}).DialContext,
			TLSHandshakeTimeout: max(c.IdleTimeout, 5*time.Second),
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: c.IdleTimeout, PingTimeout: pingTime},
		}
		c.HTTP = &http.Client{Transport: own}
	}
	if c.HTTP.CheckRedirect == nil { // agents don't redirect, and the token must not be sent elsewhere
		stays := *c.HTTP
		stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.HTTP = &stays
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c, own
}
