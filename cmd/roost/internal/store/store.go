// Package store opens the store that keeps the pins of rooms. Everything that the binary knows about kinds of
// stores is here. To add a kind, add a case to CheckURL and to Open.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Memory is the URL of a store in this process, which other agents cannot see.
const Memory = "memory:"

// connectTime is how long to wait for Redis when the agent starts. The agent also starts if Redis does not answer,
// because Redis must not decide which nodes are live.
const connectTime = time.Second // with the default budget

// Store is an open store.
type Store interface {
	pinstore.Store
	io.Closer

	// SetCredentials uses the user and password of a URL that names the same store for new connections.
	SetCredentials(url string)
}

type memory struct{ *pinstore.Memory }

func (memory) Close() error          { return nil }
func (memory) SetCredentials(string) {}

type redis struct {
	*redisstore.Store

	user atomic.Pointer[url.Userinfo]
}

func (r *redis) SetCredentials(storeURL string) {
	if u, err := url.Parse(storeURL); err == nil {
		r.user.Store(u.User)
	}
}

func (r *redis) credentials(context.Context) (username, password string, _ error) {
	user := r.user.Load() // nil if the URL has no user
	password, _ = user.Password()
	return user.Username(), password, nil
}

// Open opens the store of a cluster, and logs a warning if it does not answer. budget is what resolvers allow it for an answer.
func Open(ctx context.Context, url, cluster string, budget time.Duration, log *slog.Logger) (Store, error) {
	if url == Memory {
		log.Warn("pins are only kept in this process")
		return memory{pinstore.NewMemory()}, nil
	}
	prefix, err := Prefix(cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(connectTime, 5*budget)) // connecting takes several round trips
	defer cancel()
	s := new(redis)
	s.SetCredentials(url)
	conn, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: url, Budget: budget, Credentials: s.credentials})
	if err != nil {
		return nil, fmt.Errorf("--redis: %w", err)
	}
	if s.Store, err = redisstore.New(conn, redisstore.Options{Prefix: prefix}); err != nil {
		return nil, err
	}
	// Any request shows whether Redis answers.
	if _, err := s.Index(ctx, []placement.Partition{0}, func(lease.Incarnation) bool { return false }, 1); err != nil {
		log.Warn("Redis does not answer; starting without it, retrying", "redis", host(url), "err", err)
	} else {
		log.Info("rooms are pinned on Redis", "redis", host(url), "prefix", prefix)
		s.warnUnnotified(ctx, log)
	}
	return s, nil
}

// warnUnnotified logs a warning if Redis sends no messages about changed rooms until ctx ends.
func (r *redis) warnUnnotified(ctx context.Context, log *slog.Logger) {
	const pause = 10 * time.Millisecond
	for r.Notified() != nil {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			log.Warn("Redis sends no messages about changed rooms", "err", r.Notified())
			return
		}
	}
}

// CheckURL checks the URL of a store. Errors do not show any part of the URL, because any part of a malformed
// URL can be the password.
func CheckURL(v string) error {
	u, err := url.Parse(v)
	switch {
	case v == "":
		return errors.New("the value is empty")
	case v == Memory:
		return nil
	case err != nil || u.Opaque != "":
		return errors.New("want a URL such as redis://user:password@host:6379/0, with special characters percent-encoded")
	case !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, u.Scheme):
		return errors.New("want a URL that begins with redis://, rediss:// or unix://, or the value memory: for a single agent without Redis")
	case u.Host == "" && u.Scheme != "unix":
		return errors.New("the URL has no host: want redis://user:password@host:6379/0")
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && err != nil {
		return errors.New("the port is not a number from 0 to 65535")
	}
	return nil
}

// SamePlace reports whether two valid URLs differ at most in the user and the password.
func SamePlace(a, b string) bool {
	place := func(v string) string {
		u, err := url.Parse(v)
		if err != nil {
			return v
		}
		u.User = nil
		return u.String()
	}
	return place(a) == place(b)
}

// host returns the part of a valid URL that the log may show.
func host(v string) string {
	u, err := url.Parse(v)
	switch {
	case err != nil:
		return "?"
	case u.Scheme == "unix":
		return u.Path
	}
	return u.Host
}

// Prefix returns the prefix of the keys of a cluster, so that clusters can share a Redis. It escapes bytes
// that a prefix cannot contain, or that would make two names the same.
func Prefix(cluster string) (string, error) {
	var b strings.Builder
	b.WriteString(redisstore.DefaultPrefix)
	for _, c := range []byte(cluster) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.", c) >= 0:
			b.WriteByte(c)
		default:
			_, _ = fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	b.WriteByte(':')
	const most = 64 // bytes that redisstore accepts
	if b.Len() > most {
		return "", fmt.Errorf("the cluster's name takes %d bytes in a Redis key (%.100q), and at most %d are allowed", b.Len(), b.String(), most)
	}
	return b.String(), nil
}
