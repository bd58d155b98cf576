package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// DefaultPrefix begins the names of all keys unless Options say otherwise.
const DefaultPrefix = "roost:"

// Options configures a Store.
type Options struct {
	// URL is the address of Redis:
	//
	//	redis://user:password@host:6379/0                     one server, or a cluster
	//	redis://host1:6379?addr=host2:6379&addr=host3:6379    a cluster
	//	redis://host1:26379?addr=host2:26379&master_set=main  sentinels
	//	rediss://host:6379                                    with TLS
	//	unix:///run/redis.sock                                a socket
	//
	// Special characters in the user and the password are percent-encoded. A cluster
	// is detected; the address of one node is enough, and further addresses help while
	// that node is down. client_cache=0 in the query disables caching, for servers
	// without CLIENT TRACKING. dial_timeout and write_timeout replace the defaults that follow from Budget. Required.
	URL string

	// Budget is the Config.Budget of the resolvers over this store, if it is not 150 ms. A connection gets twice as
	// long to open and to answer, and 300 ms and 500 ms at least.
	Budget time.Duration

	// Prefix begins the names of all keys but those of the fingerprint; all nodes of a cluster
	// use the same. Several clusters share a Redis by different prefixes and different names
	// (cluster.Config.Cluster): of two clusters with one prefix, affinity.Start refuses the
	// later one. Printable ASCII without braces. Default "roost:".
	Prefix string

	// TLS replaces the default of a rediss:// URL: to verify the server by the system's
	// authorities and the URL's host name.
	TLS *tls.Config

	// Credentials returns the user, empty for the default one, and the password of the next
	// connection, in place of those of URL. It is called for each attempt to connect, from any
	// goroutine: several times a second while Redis rejects them, so keep a token that is
	// expensive to get until it expires. New credentials need no restart: they hold from the next
	// connection on, and connections that are open stay. The attempt to connect waits for it, for
	// up to 5 s, until ctx ends; if it returns an error, that attempt fails with the error, which
	// must not have the password. Sentinels are given SentinelUsername and SentinelPassword
	// instead. Nil: those of URL.
	Credentials func(ctx context.Context) (username, password string, err error)

	// SentinelUsername and SentinelPassword are for the sentinels. The user and password
	// of the URL are for the servers behind them.
	SentinelUsername, SentinelPassword string
}

// String returns the options without passwords.
func (o Options) String() string {
	where := "(invalid URL)"
	if u, err := url.Parse(o.URL); err == nil {
		where = u.Redacted()
	}
	return where + " prefix " + cmp.Or(o.Prefix, DefaultPrefix)
}

// GoString is String.
func (o Options) GoString() string { return o.String() }

// LogValue keeps passwords out of logs.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// The errors contain no part of the URL: in a malformed URL any part can be the
// password.
var (
	errURL = errors.New("redisstore: the URL cannot be read: it must look like redis://user:password@host:6379/0?name=value " +
		"with special characters percent-encoded, begin with redis, rediss or unix, and have no faulty values in its query")
	errTLS = errors.New("redisstore: Options.TLS needs a URL that begins with rediss://")
)

// client returns the options of a client without tracking, and whether a client with
// tracking is wanted. It is used until life ends.
func (o Options) client(life context.Context) (opt rueidis.ClientOption, tracking bool, err error) {
	if err := keys(o.Prefix).validate(); err != nil {
		return opt, false, err
	}
	opt, err = rueidis.ParseURL(o.URL)
	if err != nil || (opt.InitAddress[0] == "" && strings.HasPrefix(o.URL, "unix:")) {
		return opt, false, errURL
	}
	if o.TLS != nil {
		if opt.TLSConfig == nil {
			return opt, false, errTLS
		}
		name := opt.TLSConfig.ServerName
		opt.TLSConfig = o.TLS.Clone()
		opt.TLSConfig.ServerName = cmp.Or(opt.TLSConfig.ServerName, name)
	}
	tracking = !opt.DisableCache
	opt.DisableCache = true
	opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, max(300*time.Millisecond, 2*o.Budget))
	opt.ConnWriteTimeout = cmp.Or(opt.ConnWriteTimeout, max(500*time.Millisecond, 2*o.Budget))
	opt.DisableRetry = true // callers have a budget and a circuit breaker

	// Without a refresh the client never detects a node that died without closing its
	// connections.
	const refresh = 5 * time.Second
	opt.ClusterOption.ShardsRefreshInterval = refresh
	opt.ClusterOption.MaxMovedRedirections = 8 // no circles; calls run to their end, see Store.do
	opt.Sentinel.TopologyRefreshInterval = refresh
	opt.Sentinel.Dialer = opt.Dialer
	opt.Sentinel.TLSConfig = opt.TLSConfig
	opt.Sentinel.Username = o.SentinelUsername
	opt.Sentinel.Password = o.SentinelPassword
	opt.DialCtxFn = dialed(opt.DialCtxFn)
	o.ask(life, &opt)

	// One connection to each server: the server tracks the keys that a connection has
	// read, and does not notify it of its own changes. The default is several
	// connections, picked at random, and another for large pipelines.
	opt.PipelineMultiplex = -1
	opt.BlockingPipeline = -1
	opt.AlwaysPipelining = true
	const buffer = 32 << 10 // commands and answers are small; the default is 512 kB
	opt.ReadBufferEachConn = buffer
	opt.WriteBufferEachConn = buffer
	return opt, tracking, nil
}

// validate returns the addresses and the database, for people.
func (o Options) validate() (where string, err error) {
	if o.URL == "" {
		return "", fmt.Errorf("redisstore: Options.URL is missing")
	}
	opt, _, err := o.client(context.Background())
	if err != nil {
		return "", err
	}
	where = fmt.Sprintf("%s/%d", strings.Join(opt.InitAddress, ","), opt.SelectDB)
	if set := opt.Sentinel.MasterSet; set != "" {
		where += " master set " + set
	}
	return where, nil
}
