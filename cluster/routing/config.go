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

// Config is what a Client is started with.
type Config struct {
	// Agents are HTTP addresses of agents, each host:port or a URL, with a path if the API is mounted
	// below one. One of them is followed at a time, so two or three are enough. Required.
	Agents []string

	// Scope, if set, is the scope of the agents whose table is followed, in place of that of all members:
	// cluster.Agent.Scope, or roost agent --scope. An agent without this scope counts as failed, and the
	// client asks the next one. Calls about rooms know no scopes.
	Scope string

	// Token is sent with each request. The network can read it unless the agents speak https.
	Token string

	// HTTP sends the requests. Its Timeout must be 0, because it would end every stream. It follows redirects
	// only if it has a CheckRedirect. Default: a client that gives up connecting after IdleTimeout, and
	// closes a connection of HTTP/2 that is silent for IdleTimeout and answers no ping within 10 s more.
	HTTP *http.Client

	// IdleTimeout is how long the agent may say nothing until another one is asked, too. At a third of it an
	// agent without news confirms the table. 300 ms to 3 minutes; default 1 s.
	IdleTimeout time.Duration

	// Log receives the log. Default slog.Default().
	Log *slog.Logger
}

const (
	defaultIdle = time.Second
	leastIdle   = 300 * time.Millisecond
	mostIdle    = 3 * time.Minute

	// pingTime is for how long a connection of HTTP/2 may answer no ping. A dead one would serve each try of
	// its agent, for many minutes. A process that is paused for less keeps its streams of rooms.
	pingTime = 10 * time.Second
)

// validate returns every problem of the configuration.
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

// withDefaults also returns the transport that it has made, if any.
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
	if c.HTTP.CheckRedirect == nil { // no agent redirects, and the token must not go elsewhere
		stays := *c.HTTP
		stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.HTTP = &stays
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c, own
}
