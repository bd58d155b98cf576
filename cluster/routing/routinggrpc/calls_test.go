package routinggrpc_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
	"github.com/roost-cluster/roost/internal/redistest"
)

// Each kind of call goes to the owner of its key.
func TestOwner(t *testing.T) {
	a, b := serve(t), serve(t)
	o := &owners{}
	o.set("a", a.addr)
	o.set("b", b.addr)
	client, _ := clientOf(t, o)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for key, s := range map[string]*service{"a": a, "b": b} {
			before := s.runs.Load()
			at, err := kinds[kind](routinggrpc.WithKey(t.Context(), key), client)
			if err != nil || at != "" && at != s.addr || s.runs.Load() != before+1 {
				t.Errorf("%s for %s: %s, %v", kind, key, at, err)
			}
		}
	}
}

// If no handler has run, gRPC sends a call again, to the current owner of its key. All other calls are sent only once.
func TestRetries(t *testing.T) {
	for name, tt := range map[string]struct {
		first func(t *testing.T, move func()) *service // move moves the key to the next owner
		code  codes.Code
		runs  int64
	}{
		"refused": {func(t *testing.T, move func()) *service {
			s := serve(t)
			s.Stop()
			later := time.AfterFunc(100*time.Millisecond, move)
			t.Cleanup(func() { later.Stop() })
			return s
		}, codes.OK, 0},
		"rejected": {func(t *testing.T, move func()) *service {
			return serve(t, func(s *service) {
				s.rejects.Store(true)
				s.asked = func() {
					if s.calls.Load() == 2 {
						move()
					}
				}
			})
		}, codes.OK, 0},
		"has no server": {func(*testing.T, func()) *service { return &service{addr: ""} }, codes.Unavailable, 0},
		"broke off": {func(t *testing.T, move func()) *service {
			return serve(t, func(s *service) {
				s.answer = func(ctx context.Context) error {
					move()
					go s.Stop()
					<-ctx.Done()
					return ctx.Err()
				}
			})
		}, codes.Unavailable, 1},
		"the same code from a handler": {func(t *testing.T, move func()) *service {
			return serve(t, func(s *service) {
				s.answer = func(context.Context) error {
					move()
					return status.Error(routinggrpc.NotOwner, "read past the end")
				}
			})
		}, routinggrpc.NotOwner, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range slices.Sorted(maps.Keys(kinds)) {
				o := &owners{}
				next := serve(t)
				first := tt.first(t, func() { o.set("a", next.addr) })
				o.set("a", first.addr)
				o.set("", next.addr)
				client, _ := clientOf(t, o)
				_, err := kinds[kind](routinggrpc.WithKey(t.Context(), "a"), client)
				if status.Code(err) != tt.code || first.runs.Load() != tt.runs {
					t.Errorf("%s: %v, after %d handlers", kind, err, first.runs.Load())
				}
				if ran := next.runs.Load() == 1; ran != (tt.code == codes.OK) {
					t.Errorf("%s: %d handlers of the next owner have run", kind, next.runs.Load())
				}
			}
		})
	}
}

// A call waits for its owner for up to RetryTimeout. With WaitForReady, it waits until the owner is ready.
func TestRetryTimeout(t *testing.T) {
	down, rejects := serve(t), serve(t)
	down.Stop()
	rejects.rejects.Store(true)
	o := &owners{}
	o.set("down", down.addr)
	o.set("rejected", rejects.addr)
	for key, want := range map[string]codes.Code{"down": codes.Unavailable, "rejected": routinggrpc.NotOwner} {
		client, _ := clientOf(t, o, timeout(300*time.Millisecond))
		began := time.Now()
		_, err := unary(t, client, key)
		if took := time.Since(began); status.Code(err) != want || took < 200*time.Millisecond {
			t.Errorf("%s: %v after %v", key, err, took)
		}
		if key == "down" && !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("the reason is lost: %v", err)
		}
		client, _ = clientOf(t, o, timeout(-1))
		before := rejects.calls.Load()
		if _, err := unary(t, client, key); status.Code(err) != want || rejects.calls.Load() > before+1 {
			t.Errorf("%s without timeout: %v", key, err)
		}
	}

	client, _ := clientOf(t, o, timeout(-1))
	ready := make(chan error, 1)
	go func() {
		_, err := unary(t, client, "down", grpc.WaitForReady(true))
		ready <- err
	}()
	redistest.Until(t, "a failed connection", func() bool {
		_, err := unary(t, client, "down")
		return err != nil
	})
	up := serve(t)
	o.set("down", up.addr)
	if err := <-ready; err != nil || up.runs.Load() != 1 {
		t.Errorf("a call that waits until its server is ready: %v", err)
	}
}

// If a server fails and returns at the same address, the client connects to it again.
func TestSameAddress(t *testing.T) {
	a := serve(t)
	o := &owners{}
	o.set("a", a.addr)
	client, conn := clientOf(t, o)
	if _, err := unary(t, client, "a"); err != nil {
		t.Fatal(err)
	}
	a.stop(t, conn)
	again := make(chan error, 1)
	go func() {
		_, err := unary(t, client, "a")
		again <- err
	}()
	time.Sleep(200 * time.Millisecond)
	serve(t, at(a.addr))
	if err := <-again; err != nil {
		t.Error(err)
	}
}

// The client reopens a failed connection without waiting for a call, so the next call does not fail with an old error.
func TestServerIsBack(t *testing.T) {
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := down.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			attempts.Add(1)
		}
	}()
	o := &owners{}
	o.set("a", down.Addr().String())
	client, conn := clientOf(t, o, timeout(100*time.Millisecond))
	if _, err := unary(t, client, "a"); status.Code(err) != codes.Unavailable {
		t.Fatalf("%v, want %v", err, codes.Unavailable)
	}
	during := attempts.Load()
	redistest.Until(t, "attempts without a call", func() bool { return attempts.Load() > during+3 })
	_ = down.Close()
	serve(t, at(down.Addr().String()))
	redistest.Until(t, "a connection", func() bool { return conn.GetState() == connectivity.Ready })
	if _, err := unary(t, client, "a"); err != nil {
		t.Error(err)
	}
}

// If Owners is 2, the second member serves a key while the connection to the first member fails.
func TestOwners(t *testing.T) {
	first, second := serve(t), serve(t)
	o := &owners{}
	o.set("a", first.addr, second.addr)
	client, conn := clientOf(t, o, func(c *routinggrpc.Config) { c.Owners = 2 })
	if at, err := unary(t, client, "a"); err != nil || at != first.addr {
		t.Errorf("%s, %v", at, err)
	}
	first.stop(t, conn)
	if at, err := unary(t, client, "a"); err != nil || at != second.addr {
		t.Errorf("%s, %v", at, err)
	}
	serve(t, at(first.addr))
	redistest.Until(t, "the first owner to serve again", func() bool {
		at, err := unary(t, client, "a")
		return err == nil && at == first.addr
	})
}

// The client has connections only to members. If a member is gone, a stream to that member can still run to its end.
func TestConnections(t *testing.T) {
	a, b := serve(t), serve(t)
	o := &owners{}
	o.set("a", a.addr)
	client, conn := clientOf(t, o)
	redistest.Until(t, "a connection without a call", func() bool {
		conn.Connect()
		return a.conns.Load() == 1 && conn.GetState() == connectivity.Ready
	})
	stream, err := client.FullDuplexCall(routinggrpc.WithKey(t.Context(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	o.set("a", b.addr)
	redistest.Until(t, "the next owner", func() bool {
		at, err := unary(t, client, "a")
		return err == nil && at == b.addr
	})
	ping := func() error {
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := ping(); err != nil || a.conns.Load() != 1 {
		t.Errorf("the stream broke off: %v", err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	_, _ = stream.Recv()
	redistest.Until(t, "the end of the connection", func() bool { return a.conns.Load() == 0 })
}

// If there is no table, calls wait at least a second and then fail. Calls succeed once there is a table.
func TestNoTable(t *testing.T) {
	o := &owners{}
	client, _ := clientOf(t, o, timeout(200*time.Millisecond))
	began := time.Now()
	_, err := unary(t, client, "a")
	took := time.Since(began)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no table yet") || took < 900*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
	a := serve(t)
	o.set("a", a.addr)
	redistest.Until(t, "a table", func() bool {
		_, err := unary(t, client, "a")
		return err == nil
	})
	_, err = unary(t, client, "b")
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), errNobody.Error()) {
		t.Errorf("a key without an owner: %v", err)
	}
}

// A routing client is closed before it has a table, so it will never have a table. Waiting calls and later calls fail.
func TestEndedClient(t *testing.T) {
	f, err := routing.Start(t.Context(), routing.Config{Agents: []string{"127.0.0.1:1"}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	client, conn := clientOf(t, &owners{}, timeout(time.Hour), func(c *routinggrpc.Config) { c.Table = routinggrpc.FromClient(f) })
	waiting := make(chan error, 2)
	for _, ready := range []bool{false, true} {
		go func() {
			_, err := unary(t, client, "a", grpc.WaitForReady(ready))
			waiting <- err
		}()
	}
	redistest.Until(t, "a call that waits", func() bool { return conn.GetState() == connectivity.Connecting })
	_ = f.Close()
	for range 2 {
		if err := <-waiting; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "was closed before it had a table") {
			t.Error(err)
		}
	}
}
