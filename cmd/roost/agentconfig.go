package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// agentOptions is everything that `roost agent` can be told.
type agentOptions struct {
	config      string // path of the file
	cluster     cluster.Config
	http        string // host:port, or httpOff
	tokenFile   string
	keyFile     string
	redisFile   string
	token       string // from tokenFile
	redis       string // URL, also from redisFile; may hold a password
	rooms       affinity.Config
	logFormat   string
	logLevel    slog.Level
	stdinCloses bool

	shutdownDelay time.Duration

	warnings []string // allowed but unwise; for the log
}

const httpOff = "off"

// loadAgentOptions reads all layers and reports everything that is wrong.
func loadAgentOptions(from layers, hostName string) (agentOptions, error) {
	from.reserved = "config"
	var o agentOptions
	var faults []error
	if c, ok := from.choose("config", "", false); ok {
		from.path = c.values[0]
		b, err := os.ReadFile(from.path)
		if err != nil && from.path != "" { // an empty path is a fault of the setting
			faults = []error{fmt.Errorf("%s: %w", c.origin, err)}
		} else if err == nil {
			from.file, faults = parseConfig(from.path, b)
		}
	}
	origins, more := resolve(&o, agentSettings(), from, checkAlone)
	faults = append(faults, more...)
	if _, told := origins["id"]; !told {
		o.cluster.ID = hostName
		if err := lease.NodeID(hostName).Validate(); err != nil {
			faults = append(faults, fmt.Errorf("the host name %q cannot be the node's id; set --id", hostName))
		}
	}
	faults = append(faults, o.checkTogether(origins)...)
	faults = append(faults, o.readSecrets(origins)...)
	if len(faults) == 0 {
		// What concerns several settings at once and is not known here.
		if err := o.cluster.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return o, faulty(faults)
}

// checkAlone judges options in which one setting alone is applied.
func checkAlone(o agentOptions) error {
	c := o.cluster
	if c.ID == "" {
		c.ID = "x"
	}
	switch { // they are compared in checkTogether
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

// checkTogether judges settings that depend on each other.
func (o *agentOptions) checkTogether(origins map[string]origin) []error {
	var faults []error
	c := o.cluster.WithDefaults()
	ttl, heartbeat := origins["ttl"], origins["heartbeat"]
	if c.LeaseTTL <= c.HeartbeatInterval && !ttl.bad && !heartbeat.bad {
		faults = append(faults, fmt.Errorf("%s: ttl (%v) must be longer than heartbeat (%v)",
			cmp.Or(ttl.text, heartbeat.text), c.LeaseTTL, c.HeartbeatInterval))
	}
	if http := origins["http"]; !http.bad && o.http != httpOff && !loopback(o.http) && o.tokenFile == "" {
		faults = append(faults, fmt.Errorf("%s: others reach this address: set --http-token-file, or use 127.0.0.1", http.text))
	}
	return append(faults, o.checkRooms(origins)...)
}

// checkRooms judges what is said about rooms.
func (o *agentOptions) checkRooms(origins map[string]origin) []error {
	var faults []error
	redis, file := origins["redis"], origins["redis-file"]
	if redis.text != "" && file.text != "" {
		faults = append(faults, fmt.Errorf("%s and %s: both say where the Redis is; use one of them", redis.text, file.text))
	}
	if redis.text == "" && file.text == "" {
		for _, name := range []string{"pin-ttl", "soft-ceiling", "hard-ceiling", "report-load"} {
			if text := origins[name].text; text != "" {
				o.warnings = append(o.warnings, text+" has no effect without --redis")
			}
		}
		return faults
	}
	if _, err := redisPrefix(o.cluster.Cluster); err != nil {
		faults = append(faults, fmt.Errorf("%s: %w", origins["cluster"].text, err))
	}
	if err := o.rooms.Validate(); err != nil {
		for line := range strings.Lines(err.Error()) {
			faults = append(faults, errors.New(strings.TrimPrefix(strings.TrimSpace(line), "affinity: ")))
		}
	}
	return faults
}

func (o *agentOptions) readSecrets(origins map[string]origin) []error {
	var faults []error
	read := func(name, path string, use func([]byte) error) {
		if path == "" {
			return
		}
		b, warning, err := readSecret(path)
		if err == nil {
			err = use(b)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", origins[name].text, err))
		}
		if warning != "" {
			o.warnings = append(o.warnings, warning)
		}
	}
	read("key-file", o.keyFile, func(b []byte) (err error) {
		o.cluster.Key, o.cluster.OldKeys, err = decodeKeys(b)
		return err
	})
	read("http-token-file", o.tokenFile, func(b []byte) (err error) {
		o.token, err = decodeToken(b)
		return err
	})
	read("redis-file", o.redisFile, func(b []byte) error { return setRedis(o, string(b)) })
	return faults
}

// loopback reports whether only this machine reaches the host of addr. A name
// other than localhost may stand for anything.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
