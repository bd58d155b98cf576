package routinggrpc_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
)

// A key can contain any bytes. A call without a key fails in the client and in the server, unless Config.Key returns an
// empty key, which allows any server.
func TestKeys(t *testing.T) {
	a := serve(t, func(s *service) {
		s.change = func(srv *grpc.Server) { grpc_health_v1.RegisterHealthServer(srv, health.NewServer()) }
	})
	o := &owners{}
	o.set("", a.addr)
	client, conn := clientOf(t, o)
	key := "café\x00 №1"
	twice := routinggrpc.WithKey(routinggrpc.WithKey(t.Context(), "before"), key)
	if _, err := client.UnaryCall(twice, &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.keys.Load(key); !ok {
		t.Errorf("the server got another key than %q", key)
	}
	_, err := unary(t, client, "")
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "no metadata "+routinggrpc.Header) {
		t.Errorf("a call without a key: %v", err)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a health check needs no key: %v", err)
	}

	client, _ = clientOf(t, o, func(c *routinggrpc.Config) {
		c.Key = func(context.Context, string) (string, error) { return "", nil }
	})
	before := a.runs.Load()
	_, err = unary(t, client, "")
	if status.Code(err) != codes.InvalidArgument || a.runs.Load() != before {
		t.Errorf("a server with a call without a key: %v", err)
	}
	if _, err := unary(t, client, "x"); err != nil {
		t.Errorf("a call for any server: %v", err)
	}

	client, _ = clientOf(t, o, func(c *routinggrpc.Config) {
		c.Key = func(ctx context.Context, method string) (string, error) {
			if method != grpc_testing.TestService_UnaryCall_FullMethodName {
				return "", errors.New("another method")
			}
			return routinggrpc.Outgoing("x-room")(ctx, method)
		}
	})
	ctx := routinggrpc.WithKey(metadata.AppendToOutgoingContext(t.Context(), "x-room", "hooked"), "hooked")
	if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); err != nil {
		t.Errorf("a hook: %v", err)
	}
	if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); status.Code(err) != codes.Internal ||
		!strings.Contains(err.Error(), "another method") {
		t.Errorf("the error of a hook: %v", err)
	}
}

// If the connection to the first member fails, a call for any server goes to another member.
func TestAnyServer(t *testing.T) {
	down, up := serve(t), serve(t)
	down.Stop()
	o := &owners{}
	o.set("", down.addr, up.addr)
	client, _ := clientOf(t, o, func(c *routinggrpc.Config) {
		c.Key = func(context.Context, string) (string, error) { return "", nil }
	})
	if at, err := unary(t, client, "x"); err != nil || at != up.addr {
		t.Errorf("%s, %v", at, err)
	}
}

// If the owner is not among the known members yet, a call waits for it, as for an unreachable owner.
func TestNewerTable(t *testing.T) {
	a := serve(t)
	o := &owners{}
	o.set("", a.addr)
	client, _ := clientOf(t, o, timeout(200*time.Millisecond))
	if _, err := unary(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second owner gets as much time as the first
		o.mu.Lock()
		o.at["new"] = []string{serve(t).addr} // the subscribers are not notified
		o.mu.Unlock()
		began := time.Now() // after the owner has changed
		_, err := unary(t, client, "new")
		if waited := time.Since(began); waited < 200*time.Millisecond {
			t.Errorf("waited for %v", waited)
		}
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "is not a member") {
			t.Errorf("an owner that stays away: %v", err)
		}
	}

	client, _ = clientOf(t, o, func(c *routinggrpc.Config) { c.RetryTimeout = time.Minute })
	if _, err := unary(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	c := serve(t)
	o.at["newer"] = []string{c.addr}
	o.mu.Unlock()
	told := time.AfterFunc(50*time.Millisecond, func() { o.set("x", a.addr) })
	defer told.Stop()
	if at, err := unary(t, client, "newer"); err != nil || at != c.addr {
		t.Errorf("%s, %v", at, err)
	}
}

// With a healthCheckConfig, an owner that does not report SERVING is considered unreachable.
func TestHealth(t *testing.T) {
	reports := health.NewServer()
	a := serve(t, func(s *service) {
		s.change = func(srv *grpc.Server) { grpc_health_v1.RegisterHealthServer(srv, reports) }
	})
	o := &owners{}
	o.set("a", a.addr)
	reports.SetServingStatus("rooms", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	healthy := func(c *routinggrpc.Config) { c.ServiceConfig = `{"healthCheckConfig": {"serviceName": "rooms"}}` }
	client, _ := clientOf(t, o, healthy, timeout(200*time.Millisecond))
	if _, err := unary(t, client, "a"); status.Code(err) != codes.Unavailable || a.runs.Load() != 0 {
		t.Errorf("an unhealthy owner: %v", err)
	}
	client, _ = clientOf(t, o, healthy)
	well := time.AfterFunc(100*time.Millisecond, func() {
		reports.SetServingStatus("rooms", grpc_health_v1.HealthCheckResponse_SERVING)
	})
	defer well.Stop()
	if _, err := unary(t, client, "a"); err != nil {
		t.Error(err)
	}
}

// The policies in Config.ServiceConfig are kept, and methods without a retryPolicy get the policy for rejected calls.
func TestServiceConfig(t *testing.T) {
	a := serve(t, func(s *service) {
		s.answer = func(context.Context) error { return status.Error(codes.Unavailable, "later") }
	})
	o := &owners{}
	o.set("a", a.addr)
	client, _ := clientOf(t, o, func(c *routinggrpc.Config) {
		c.ServiceConfig = `{"methodConfig": [
			{"name": [{"service": "grpc.testing.TestService", "method": "UnaryCall"}], "retryPolicy":
				{"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}},
			{"name": [{"service": "grpc.testing.TestService"}], "timeout": "60s"}]}`
	})
	if _, err := unary(t, client, "a"); status.Code(err) != codes.Unavailable || a.runs.Load() != 3 {
		t.Errorf("%v after %d handlers", err, a.runs.Load())
	}
	a.rejects.Store(true)
	a.asked = func() { a.rejects.Store(a.calls.Load() < 6) }
	_, err := kinds["both ways"](routinggrpc.WithKey(t.Context(), "a"), client)
	if code := status.Code(err); code != codes.Unavailable || a.calls.Load() != 6 || a.runs.Load() != 4 {
		t.Errorf("%v after %d calls and %d handlers", err, a.calls.Load(), a.runs.Load())
	}
}

// DialOptions refuses an invalid configuration. Some errors only appear when the first call is made.
func TestInvalid(t *testing.T) {
	table := (&owners{}).table()
	for want, cfg := range map[string]routinggrpc.Config{
		"Table is required":    {},
		"Owners is -1":         {Table: table, Owners: -1},
		"ServiceConfig: ":      {Table: table, ServiceConfig: "{"},
		"names a balancer":     {Table: table, ServiceConfig: `{"loadBalancingConfig": [{"round_robin": {}}]}`},
		"names a balancer: re": {Table: table, ServiceConfig: `{"loadBalancingPolicy": "round_robin"}`},
	} {
		if _, err := routinggrpc.DialOptions(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	o := &owners{}
	o.set("", "127.0.0.1:1")
	client, _ := clientOf(t, o, func(c *routinggrpc.Config) { c.ServiceConfig = `{"methodConfig": [{"name": [{"method": "x"}]}]}` })
	if _, err := unary(t, client, "a"); err == nil || !strings.Contains(err.Error(), "ServiceConfig") {
		t.Errorf("a malformed method: %v", err)
	}
	conn, err := grpc.NewClient("passthrough:///127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"roost": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := unary(t, grpc_testing.NewTestServiceClient(conn), "a"); err == nil || !strings.Contains(err.Error(), "DialOptions") {
		t.Errorf("the balancer alone: %v", err)
	}
}

// The client verifies a certificate against the host of the member's address, or against the name in the target.
func TestCertificates(t *testing.T) {
	https := httptest.NewTLSServer(nil) // only used for its certificate
	defer https.Close()
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	a := serve(t, func(s *service) { s.creds = grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])) })
	o := &owners{}
	o.set("a", a.addr)
	for target, ok := range map[string]bool{"roost:///": true, "roost:///media.example.com": true, "roost:///other.example.org": false} {
		opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: o.table(), RetryTimeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")))...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = unary(t, grpc_testing.NewTestServiceClient(conn), "a")
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", target, err)
		}
		_ = conn.Close()
	}
}
