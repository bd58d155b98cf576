package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// connectTime is how long an agent that starts waits for Redis. It goes on without
// an answer, since Redis must not gate who lives.
const connectTime = time.Second

// redis is where an agent keeps the pins of rooms. The zero value keeps none.
type redis struct {
	store *redisstore.Store
	log   *slog.Logger
}

// rooms pins rooms beside an agent; nil inside if there is no Redis.
type rooms struct{ *affinity.Resolver }

// openRedis connects, and warns if Redis does not answer.
func openRedis(ctx context.Context, o agentOptions, log *slog.Logger) (redis, error) {
	if o.redis == "" {
		return redis{}, nil
	}
	prefix, err := redisPrefix(o.cluster.Cluster)
	if err != nil {
		return redis{}, err
	}
	connecting, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	store, err := redisstore.Open(connecting, redisstore.Options{URL: o.redis, Prefix: prefix})
	if err != nil {
		return redis{}, fmt.Errorf("--redis: %w", err)
	}
	where := hostOf(o.redis)
	// Any question will do.
	if _, err := store.Index(connecting, []placement.Partition{0}, func(lease.Incarnation) bool { return false }, 1); err != nil {
		log.Warn("Redis does not answer; going on without it, and trying again", "redis", where, "err", err)
	} else {
		log.Info("rooms are pinned on Redis", "redis", where, "prefix", prefix)
	}
	return redis{store, log}, nil
}

// start pins rooms beside the agent from now on.
func (r redis) start(agent *cluster.Agent, o agentOptions) (rooms, error) {
	if r.store == nil {
		return rooms{}, nil
	}
	o.rooms.Log = r.log
	resolver, err := affinity.Start(agent, r.store, o.rooms)
	return rooms{resolver}, err
}

func (r redis) close() {
	if r.store != nil {
		_ = r.store.Close()
	}
}

func (r rooms) end(log *slog.Logger) {
	if r.Resolver == nil {
		return
	}
	if err := r.Close(); err != nil {
		log.Warn("the rooms here have to wait until this node's lease has run out", "err", err)
	}
}

// setRedis takes the URL of a Redis. What is wrong with it is told without any of
// it: when it is not read as it was meant, any part can be the password.
func setRedis(o *agentOptions, v string) error {
	u, err := url.Parse(v)
	switch {
	case v == "":
		return errors.New("the value is empty")
	case err != nil || u.Opaque != "":
		return errors.New("want a URL such as redis://user:password@host:6379/0, with special characters percent-encoded")
	case !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, u.Scheme):
		return errors.New("want a URL that begins with redis://, rediss:// or unix://")
	case u.Host == "" && u.Scheme != "unix":
		return errors.New("the URL has no host: want redis://user:password@host:6379/0")
	case u.Port() != "" && checkHostPort(":"+u.Port()) != nil:
		return errors.New("the port is not a number from 0 to 65535")
	}
	o.redis = v
	return nil
}

// hostOf is what may be logged of a URL that setRedis took.
func hostOf(redis string) string {
	u, err := url.Parse(redis)
	switch {
	case err != nil:
		return "?"
	case u.Scheme == "unix":
		return u.Path
	}
	return u.Host
}

// redisPrefix begins the keys of a cluster, so that two can share a Redis. Bytes
// that cannot be in a prefix, or would make two names one, are escaped.
func redisPrefix(cluster string) (string, error) {
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
	const most = 64 // bytes that redisstore takes
	if b.Len() > most {
		return "", fmt.Errorf("the cluster's name is too long for keys on Redis: %d bytes as %.100q, at most %d", b.Len(), b.String(), most)
	}
	return b.String(), nil
}
