package rueidisconn

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

// Options configures a Conn.
type Options struct {
	// URL is the address of Redis:
	//
	//	redis://user:password@host:6379/0                     one server, or a cluster
	//	redis://host1:6379?addr=host2:6379&addr=host3:6379    a cluster
	//	redis://host1:26379?addr=host2:26379&master_set=main  sentinels
	//	rediss://host:6379                                    with TLS
	//	unix:///run/redis.sock                                a socket
	//
	// Percent-encode special characters in the user and the password. A cluster is detected automatically.
	// The address of one of its nodes is sufficient, but additional addresses help while that node is down.
	// The parameters dial_timeout and write_timeout override the defaults that are derived from Budget.
	// Required.
	URL string

	// Budget is the Config.Budget of the resolvers that use this connection. The timeout for opening a
	// connection is twice the budget, but at least 300 ms. The timeout for an answer is twice the budget, but
	// at least 500 ms. Default 150 ms.
	Budget time.Duration

	// TLS overrides the default configuration for a rediss:// URL. By default, the client verifies the server
	// with the system's certificate authorities and the host name in the URL.
	TLS *tls.Config

	// Credentials returns the user and the password for the next connection, in place of the user and
	// password in URL. An empty user means the default user. If Credentials is nil, connections use the user
	// and password in URL. Default nil.
	//
	// The connection calls Credentials for each attempt to connect, from any goroutine, and several times per
	// second while Redis rejects the credentials. Therefore, cache tokens that are expensive to obtain. New
	// credentials do not require a restart. New credentials apply to new connections, and open connections
	// remain open.
	//
	// ctx ends after 5 s, and the attempt to connect waits for Credentials until then. If Credentials returns
	// an error, the attempt fails with that error. The error must not contain the password. For sentinels,
	// connections use SentinelUsername and SentinelPassword.
	Credentials func(ctx context.Context) (username, password string, err error)

	// SentinelUsername and SentinelPassword are the credentials for sentinels. The user and password in URL
	// are for the servers that the sentinels monitor.
	SentinelUsername, SentinelPassword string
}

// String returns the options without passwords.
func (o Options) String() string {
	where := "(invalid URL)"
	if u, err := url.Parse(o.URL); err == nil {
		where = u.Redacted()
	}
	return where
}

// GoString returns the same text as String.
func (o Options) GoString() string { return o.String() }

// LogValue excludes passwords from logs.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// These errors contain no part of the URL, because any part of a malformed URL could be the password.
var (
	errURL = errors.New("rueidisconn: the URL cannot be read: it must look like redis://user:password@host:6379/0?name=value " +
		"with special characters percent-encoded, begin with redis, rediss or unix, and have no faulty values in its query")
	errTLS = errors.New("rueidisconn: Options.TLS needs a URL that begins with rediss://")
)

// client returns the options for a rueidis client. The client can use the options until life ends.
func (o Options) client(life context.Context) (opt rueidis.ClientOption, err error) {
	opt, err = rueidis.ParseURL(o.URL)
	if err != nil || (opt.InitAddress[0] == "" && strings.HasPrefix(o.URL, "unix:")) {
		return opt, errURL
	}
	if o.TLS != nil {
		if opt.TLSConfig == nil {
			return opt, errTLS
		}
		name := opt.TLSConfig.ServerName
		opt.TLSConfig = o.TLS.Clone()
		opt.TLSConfig.ServerName = cmp.Or(opt.TLSConfig.ServerName, name)
	}
	opt.DisableCache = true
	opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, max(300*time.Millisecond, 2*o.Budget))
	opt.ConnWriteTimeout = cmp.Or(opt.ConnWriteTimeout, max(500*time.Millisecond, 2*o.Budget))
	opt.DisableRetry = true // callers have a budget and a circuit breaker

	// Without a refresh, the client would never detect a node that failed without closing its connections.
	const refresh = 5 * time.Second
	opt.ClusterOption.ShardsRefreshInterval = refresh
	opt.ClusterOption.MaxMovedRedirections = 8 // limits redirections, because calls run until they end; see Conn.Do
	opt.Sentinel.TopologyRefreshInterval = refresh
	opt.Sentinel.Dialer = opt.Dialer
	opt.Sentinel.TLSConfig = opt.TLSConfig
	opt.Sentinel.Username = o.SentinelUsername
	opt.Sentinel.Password = o.SentinelPassword
	opt.DialCtxFn = dialed(opt.DialCtxFn)
	o.ask(life, &opt)

	// Use one connection to each server for commands and messages. By default, rueidis would use several
	// connections, picked at random, and an additional connection for large pipelines.
	opt.PipelineMultiplex = -1
	opt.BlockingPipeline = -1
	opt.AlwaysPipelining = true
	const buffer = 32 << 10 // commands and answers are small; the default is 512 kB
	opt.ReadBufferEachConn = buffer
	opt.WriteBufferEachConn = buffer
	return opt, nil
}

// validate checks the options and returns the addresses and the database number in a readable form.
func (o Options) validate() (where string, err error) {
	if o.URL == "" {
		return "", fmt.Errorf("rueidisconn: Options.URL is missing")
	}
	opt, err := o.client(context.Background())
	if err != nil {
		return "", err
	}
	where = fmt.Sprintf("%s/%d", strings.Join(opt.InitAddress, ","), opt.SelectDB)
	if set := opt.Sentinel.MasterSet; set != "" {
		where += " master set " + set
	}
	return where, nil
}
