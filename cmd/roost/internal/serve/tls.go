package serve

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// certificates reads the TLS files, and reads them again when they change, because an agent usually runs
// longer than its certificate is valid.
type certificates struct {
	files settings.TLS
	log   *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	read   []os.FileInfo // the files when config was made
	next   time.Time     // when to check them again
	failed string        // the last failure that was logged
	since  time.Time     // time of failed
	warned time.Time     // when the log last said that the certificate expires soon
}

// lookEvery is the minimum time between two checks of the files.
const lookEvery = time.Second

func readCertificates(files settings.TLS, log *slog.Logger) (*certificates, error) {
	c := &certificates{files: files, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// server returns the configuration of the listener. Open connections keep the certificate that they started
// with.
func (c *certificates) server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.look(time.Now()), nil },
	}
}

// look returns the TLS configuration. If the files are invalid, it returns the last valid configuration. If c
// is nil, TLS is off, and look returns nil.
func (c *certificates) look(now time.Time) *tls.Config {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		return c.config
	}
	c.next = now.Add(lookEvery)
	c.warn(now)
	if c.failed == "" && c.unchanged() { // after a failure, the files may have been restored
		return c.config
	}
	if err := c.load(); err != nil { // the files may be only partly replaced
		if c.failed != err.Error() {
			c.failed, c.since = err.Error(), now
			c.log.Warn("TLS files unusable; keeping the former certificate", "err", err)
		}
		return c.config
	}
	c.failed = ""
	c.log.Info("TLS files read again", "expires", c.config.Certificates[0].Leaf.NotAfter)
	return c.config
}

// problem returns the reason why the files cannot be used and the time since when, or "" if the files are
// valid.
func (c *certificates) problem() (why string, since time.Time) {
	if c == nil {
		return "", time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed, c.since
}

func (c *certificates) unchanged() bool {
	now, err := c.stat()
	if err != nil {
		return false
	}
	for i, is := range now {
		if was := c.read[i]; !os.SameFile(is, was) || !is.ModTime().Equal(was.ModTime()) || is.Size() != was.Size() {
			return false
		}
	}
	return true
}

func (c *certificates) stat() (infos []os.FileInfo, _ error) {
	for _, path := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (c *certificates) load() error {
	read, err := c.stat() // stat before reading, so that the next check notices a change in between
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if c.files.ClientCA != "" {
		if config.ClientCAs, err = settings.CertPool(c.files.ClientCA); err != nil {
			return err
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven // probes have no certificate: see certified
	}
	c.config, c.read = config, read
	return nil
}

// warn logs once a day that the certificate has expired or expires within a week.
func (c *certificates) warn(now time.Time) {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	if ends := c.config.Certificates[0].Leaf.NotAfter; ends.Sub(now) < week && now.Sub(c.warned) >= day {
		c.warned = now
		c.log.Warn("TLS certificate expires soon; replace the file", "file", c.files.Cert, "expires", ends)
	}
}

// certified returns the reason why a request is rejected, or nil. A request is rejected if --http-client-ca
// is set and the client has not shown a certificate of that CA. Probes are always allowed.
func (c *certificates) certified(r *http.Request) *clusterhttp.Problem {
	if c == nil || c.files.ClientCA == "" || (r.TLS != nil && len(r.TLS.VerifiedChains) > 0) ||
		r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return nil
	}
	return &clusterhttp.Problem{
		Status: http.StatusUnauthorized, Code: clusterhttp.CodeUnauthorized,
		Message: "this needs a client certificate from the CA in the agent's --http-client-ca",
	}
}
