package rueidisconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Names()
	leak.Main(m)
}

// open opens a connection. The connection is closed at the end of the test.
func open(tb testing.TB, opt Options) *Conn {
	tb.Helper()
	c, err := Open(tb.Context(), opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// ping sends a PING and waits at most 150 ms for the answer.
func ping(c *Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	return c.Do(ctx, redisconn.Command{Head: []string{"PING"}})[0].Err
}

const secret = "hunter2"

func TestTLSNeedsItsScheme(t *testing.T) {
	if _, err := Open(t.Context(), Options{URL: "redis://localhost", TLS: &tls.Config{MinVersion: tls.VersionTLS13}}); !errors.Is(err, errTLS) {
		t.Errorf("error %v for TLS with redis://", err)
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, opt := range []Options{
		{},
		{URL: secret},
		{URL: "http://:" + secret + "@localhost"},
		{URL: "redis://:" + secret + "%zz@localhost"},
		{URL: "redis://:" + secret + "/x@localhost:6379"},
		{URL: "redis://localhost/" + secret},
		{URL: "redis://localhost/0/" + secret},
		{URL: "redis://:" + secret + "@localhost:port"},
		{URL: "redis://:" + secret + "@localhost?dial_timeout=soon"},
		{URL: "redis://" + secret + "\x00"},
		{URL: "unix://"},
	} {
		s, err := Open(t.Context(), opt)
		if err == nil {
			t.Errorf("%v: opened", opt)
			_ = s.Close()
			continue
		}
		if strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "rueidisconn: ") {
			t.Errorf("error %v; want one of rueidisconn without the URL", err)
		}
	}
}

func TestSecretsStaySecret(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "another")
	opt := Options{URL: "redis://:" + secret + "@" + server.Addr(), SentinelPassword: secret}
	s := open(t, opt)
	redistest.Eventually(t, "WRONGPASS", func() error {
		err := ping(s)
		if strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(err.Error(), "WRONGPASS") {
			return err
		}
		return nil
	})
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "opt", opt)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "opt", opt)
	for _, text := range []string{log.String(), fmt.Sprint(opt), fmt.Sprintf("%+v", opt), fmt.Sprintf("%#v", opt)} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the password", text)
		}
		if !strings.Contains(text, server.Addr()) {
			t.Errorf("%s has not the address", text)
		}
	}
}
