package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Agent is the configuration of `roost agent`.
type Agent struct {
	Cluster       cluster.Config
	Scopes        []Scope
	HTTP          string   // host:port, or Off
	Tokens        []string // for requests that change something; if empty, no token is needed
	ReadTokens    []string
	TokenReads    bool
	Hosts         []string // accepted host names in requests
	TLS           TLS
	KeyFile       string // "" = none; Cluster has its keys
	Store         string // URL, which may have a password; "" = none
	Rooms         affinity.Config
	LogFormat     string
	LogLevel      slog.Level
	StdinCloses   bool // the agent exits when standard input closes
	ShutdownDelay time.Duration

	Warnings []string // risks to log

	config     string // path of the configuration file
	given      map[string]chosen
	files      Files
	requireKey bool
}

// Off is the value of --http that turns HTTP off.
const Off = "off"

// LoadAgent reads the configuration of an agent from all sources. Its error lists all problems. The default
// id of the node is hostName.
func LoadAgent(from Sources, hostName string) (Agent, error) {
	var a Agent
	var problems []error
	file := a.configFile()
	from.reserved = file.Name
	if c, ok := from.choose(file); ok {
		from.path = c.values[0]
		a.note(from.path)
		b, err := os.ReadFile(from.path)
		if err != nil && from.path != "" { // the setting itself reports an empty path
			problems = []error{fmt.Errorf("%s: %w", c.origin, err)}
		} else if err == nil {
			from.file, problems = parseFile(from.path, b)
		}
	}
	given, more := resolve(a.Settings(), from, checkAlone)
	a.given = given
	a.warnOfPassword(from.path, given["redis"])
	if info, err := os.Stat(a.TLS.Key); a.TLS.Key != "" && err == nil && exposed(info) {
		a.Warnings = append(a.Warnings, exposure(a.TLS.Key, info))
	}
	problems = append(problems, more...)
	if _, set := given["id"]; !set {
		a.Cluster.ID = hostName
		if err := lease.NodeID(hostName).Validate(); err != nil {
			problems = append(problems, fmt.Errorf("the host name %q cannot be the node's id; set --id", hostName))
		}
	}
	problems = append(problems, a.checkTogether(given)...)
	if len(problems) == 0 {
		// Only package cluster knows how these settings depend on each other.
		if err := a.Cluster.Validate(); err != nil {
			problems = append(problems, err)
		}
	}
	return a, Problems(problems)
}

// warnOfPassword adds a warning if the configuration file contains a password and other users can read the
// file.
func (a *Agent) warnOfPassword(path string, redis chosen) {
	if !strings.HasPrefix(redis.origin, path+":") || path == "" || len(redis.values) != 1 {
		return
	}
	u, err := url.Parse(redis.values[0])
	if err != nil || u.User == nil {
		return
	}
	if _, secret := u.User.Password(); !secret {
		return
	}
	if info, err := os.Stat(path); err == nil && exposed(info) {
		a.Warnings = append(a.Warnings, exposure(path, info)+", or use --redis-file")
	}
}

// checkAlone checks the values of one setting on an otherwise default agent, so that the problem names the
// source of the value.
func checkAlone(name string, values []string) error {
	var a Agent
	for _, s := range a.Settings() {
		if s.Name == name {
			if err := s.apply(chosen{values: values, listed: s.List}); err != nil {
				return err
			}
		}
	}
	c := a.Cluster
	c.ID, c.Capacity = cmp.Or(c.ID, "x"), cmp.Or(c.Capacity, 1)
	switch { // checkTogether compares them
	case c.LeaseTTL > 0:
		c.HeartbeatInterval = 10 * time.Millisecond
	case c.HeartbeatInterval > 0:
		c.LeaseTTL = time.Hour
	}
	err := c.Validate()
	if err == nil {
		return nil
	}
	var b strings.Builder
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimPrefix(line, "cluster: "), "lease: ")
		b.WriteString(strings.TrimPrefix(line, `record of "x": `))
	}
	return errors.New(b.String())
}

// checkTogether checks settings that depend on each other.
func (a *Agent) checkTogether(given map[string]chosen) (problems []error) {
	c := a.Cluster.WithDefaults()
	ttl, heartbeat := given["ttl"], given["heartbeat"]
	if 10*c.LeaseTTL < 13*c.HeartbeatInterval && !ttl.bad && !heartbeat.bad {
		problems = append(problems, fmt.Errorf("%s: ttl (%v) must be at least 1.3 times heartbeat (%v)",
			cmp.Or(ttl.origin, heartbeat.origin), c.LeaseTTL, c.HeartbeatInterval))
	}
	if a.requireKey && given["key-file"].origin == "" {
		problems = append(problems, fmt.Errorf("%s: there is no --key-file; generate a key with roost keygen", given["require-key"].origin))
	}
	if a.requireKey && a.takesPlain() {
		problems = append(problems, fmt.Errorf("%s: the key file has the line plain, so any host could join; remove the line when all nodes encrypt",
			given["require-key"].origin))
	}
	if scopes := given["scope"]; len(a.Scopes) > 0 && !scopes.bad && placement.Remembers(c.Strategy) {
		problems = append(problems, fmt.Errorf("%s: strategy %q: %w", scopes.origin, c.Strategy.Name(), cluster.ErrScopeStrategy))
	}
	return slices.Concat(problems, a.checkCapacity(given), a.checkHTTP(given), a.checkRooms(given))
}

// checkCapacity checks the settings that need a capacity.
func (a *Agent) checkCapacity(given map[string]chosen) (problems []error) {
	if a.Cluster.Capacity > 0 || given["capacity"].bad {
		return nil
	}
	if auto := given["auto-weight"]; a.Cluster.AutoWeight {
		problems = append(problems, fmt.Errorf("%s: this needs --capacity, because it compares the load with the capacity", auto.origin))
	}
	if resources := given["resources"]; len(a.Cluster.Resources) > 0 && !resources.bad {
		problems = append(problems, fmt.Errorf("%s: this needs --capacity, because the load is a part of it", resources.origin))
	}
	return problems
}

// takesPlain reports whether the key file allows the agent to send or accept plain text.
func (a *Agent) takesPlain() bool {
	return slices.ContainsFunc(append([][]byte{a.Cluster.Key}, a.Cluster.OldKeys...),
		func(k []byte) bool { return string(k) == cluster.PlainText })
}

func (a *Agent) checkHTTP(given map[string]chosen) (problems []error) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	guarded := given["http-token-file"].origin != "" || given["http-client-ca"].origin != ""
	if http := given["http"]; !http.bad && a.HTTP != Off && !Loopback(a.HTTP) && !guarded {
		problem("%s: other machines can reach this address: set --http-token-file or --http-client-ca, or use 127.0.0.1", http.origin)
	}
	if cert, key := given["http-tls-cert"].origin, given["http-tls-key"].origin; (cert == "") != (key == "") {
		problem("%s: --http-tls-cert and --http-tls-key belong together", cmp.Or(cert, key))
	} else if ca := given["http-client-ca"].origin; ca != "" && cert == "" {
		problem("%s: clients show certificates only over TLS: set --http-tls-cert and --http-tls-key", ca)
	}
	for _, name := range []string{"http-token-reads", "http-read-token-file"} {
		if origin := given[name].origin; origin != "" && given["http-token-file"].origin == "" {
			problem("%s: this needs --http-token-file, because without it anyone may change the node", origin)
		}
	}
	return problems
}

func (a *Agent) checkRooms(given map[string]chosen) (problems []error) {
	url, file := given["redis"], given["redis-file"]
	if url.origin != "" && file.origin != "" {
		problems = append(problems, fmt.Errorf("%s and %s: both give the URL of Redis; use one of them", url.origin, file.origin))
	}
	if url.origin == "" && file.origin == "" {
		for _, name := range []string{"redis-timeout", "pin-ttl", "soft-ceiling", "hard-ceiling", "strict-ceiling", "limit-growth", "rebalance", "report-load"} {
			if text := given[name].origin; text != "" {
				a.Warnings = append(a.Warnings, text+" has no effect without --redis")
			}
		}
		return problems
	}
	if _, err := store.Prefix(a.Cluster.Cluster); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", given["cluster"].origin, err))
	}
	if err := a.Rooms.Validate(); err != nil {
		for line := range strings.Lines(err.Error()) {
			problems = append(problems, errors.New(strings.TrimPrefix(strings.TrimSpace(line), "affinity: ")))
		}
	}
	return problems
}

// Loopback reports whether addr is only reachable from this machine. A host name other than localhost is not
// considered loopback, because it can refer to any host.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
