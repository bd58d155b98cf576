package rueidisconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// credentialsTime is the maximum duration of a call of Options.Credentials.
const credentialsTime = 5 * time.Second

// ask makes the client of opt call Credentials for each connection until life ends. rueidis uses the same
// callback for sentinels and passes it only an address, so sentinels would receive these credentials too.
// Therefore, the dialer marks connections to sentinels. The dialer recognizes sentinels by their resolver,
// which resolves names like the default resolver.
func (o Options) ask(life context.Context, opt *rueidis.ClientOption) {
	if o.Credentials == nil {
		return
	}
	sentinels := &net.Resolver{}
	opt.Sentinel.Dialer.Resolver = sentinels
	dial := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, security *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, security)
		if err == nil && d.Resolver == sentinels {
			conn = ofSentinel{conn}
		}
		return conn, err
	}
	opt.AuthCredentialsFn = func(to rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if _, ok := to.Address.(sentinelAddr); ok {
			return rueidis.AuthCredentials{Username: o.SentinelUsername, Password: o.SentinelPassword}, nil
		}
		ctx, cancel := context.WithTimeout(life, credentialsTime)
		defer cancel()
		username, password, err := o.Credentials(ctx)
		if err != nil {
			return rueidis.AuthCredentials{}, fmt.Errorf("credentials: %w", err)
		}
		return rueidis.AuthCredentials{Username: username, Password: password}, nil
	}
}

// ofSentinel marks a connection to a sentinel.
type ofSentinel struct{ net.Conn }

type sentinelAddr struct{ net.Addr }

func (c ofSentinel) RemoteAddr() net.Addr { return sentinelAddr{c.Conn.RemoteAddr()} }
