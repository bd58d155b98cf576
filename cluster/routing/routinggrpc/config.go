package routinggrpc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
)

// Config configures how a client finds the server of a call. Table is required.
type Config struct {
	Table Table

	// Key returns the key of a call. Default Outgoing(Header).
	Key Key

	// Owners is how many of the best members for a key may serve a call. While the connection to the first
	// member fails, the call goes to the next member, which must accept the call. Default 1: only the owner.
	Owners int

	// RetryTimeout is how long a call waits for a failing connection, and how long gRPC keeps sending a call
	// that servers reject. Default 5 s; negative: no waiting and no retries.
	RetryTimeout time.Duration

	// ServiceConfig is a gRPC service config in JSON, without a loadBalancingConfig. The service config can
	// have timeouts, waitForReady, or a healthCheckConfig. With a healthCheckConfig, an owner that does not
	// report SERVING is considered unreachable. Methods without a retryPolicy get a policy for rejected
	// calls. Your own retryPolicy should include OUT_OF_RANGE in its codes. Use this field instead of
	// grpc.WithDefaultServiceConfig.
	ServiceConfig string
}

const (
	// scheme is the scheme of targets and the name of the balancer.
	scheme = "roost"

	// leastPause and longestPause limit the pause between two attempts of a rejected call.
	leastPause   = 10 * time.Millisecond
	longestPause = 200 * time.Millisecond

	// leastBackoff and longestBackoff limit the pause between two attempts to connect, and connectTimeout
	// limits an attempt. The times are short because members have live leases: an unreachable server soon
	// either returns or is no longer a member.
	leastBackoff   = 100 * time.Millisecond
	longestBackoff = time.Second
	connectTimeout = 3 * time.Second
)

// DialOptions returns the options that make grpc.NewClient send calls to the owners of their keys. Use the
// target "roost:///". If you pass further options to grpc.NewClient, they override these options. DialOptions
// fails if cfg is invalid.
func DialOptions(cfg Config) ([]grpc.DialOption, error) {
	switch {
	case cfg.Table.place == nil:
		return nil, errors.New("routinggrpc: Table is required: see FromClient and TableOf")
	case cfg.Owners < 0:
		return nil, fmt.Errorf("routinggrpc: Owners is %d; it must not be negative", cfg.Owners)
	}
	cfg.Owners = cmp.Or(cfg.Owners, 1)
	cfg.RetryTimeout = cmp.Or(cfg.RetryTimeout, 5*time.Second)
	if cfg.Key == nil {
		cfg.Key = Outgoing(Header)
	}
	var err error
	if cfg.ServiceConfig, err = cfg.serviceConfig(); err != nil {
		return nil, err
	}
	return []grpc.DialOption{
		grpc.WithResolvers(builder{&cfg}),
		grpc.WithNoProxy(),
		grpc.WithMaxCallAttempts(max(cfg.attempts(), 5)), // gRPC's default is 5
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: leastBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff},
			MinConnectTimeout: connectTimeout,
		}),
	}, nil
}

// attempts returns the maximum number of times that a rejected call is sent. The pauses between the attempts
// double, and their sum is about RetryTimeout.
func (c *Config) attempts() int {
	n := 1
	for pause, sum := leastPause, time.Duration(0); sum < c.RetryTimeout; n++ {
		sum += pause
		pause = min(2*pause, longestPause)
	}
	return n
}

// serviceConfig adds the balancer and the retry policies to the service config.
func (c *Config) serviceConfig() (string, error) {
	all := make(map[string]any)
	if c.ServiceConfig != "" {
		if err := json.Unmarshal([]byte(c.ServiceConfig), &all); err != nil {
			return "", fmt.Errorf("routinggrpc: ServiceConfig: %w", err)
		}
	}
	if all["loadBalancingConfig"] != nil || all["loadBalancingPolicy"] != nil {
		return "", errors.New("routinggrpc: ServiceConfig names a balancer: remove it")
	}
	all["loadBalancingConfig"] = []any{map[string]any{scheme: struct{}{}}}
	if n := c.attempts(); n > 1 {
		all["methodConfig"] = withRetries(all["methodConfig"], map[string]any{
			"maxAttempts": n, "initialBackoff": seconds(leastPause), "maxBackoff": seconds(longestPause), "backoffMultiplier": 2,
			"retryableStatusCodes": []codes.Code{NotOwner},
		})
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// withRetries adds policy to the method configs that have no retryPolicy, and to all other methods.
// withRetries does not check the configs, because gRPC reports malformed configs.
func withRetries(configs any, policy map[string]any) []any {
	list, _ := configs.([]any)
	others := true
	for _, c := range list {
		method, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if method["retryPolicy"] == nil {
			method["retryPolicy"] = policy
		}
		names, _ := method["name"].([]any)
		for _, n := range names {
			if name, ok := n.(map[string]any); ok && len(name) == 0 {
				others = false
			}
		}
	}
	if others {
		list = append(list, map[string]any{"name": []any{struct{}{}}, "retryPolicy": policy})
	}
	return list
}

// seconds returns a duration in the JSON format of protobuf.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
