package routinggrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"

	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/redistest"
)

var quiet = slog.New(slog.DiscardHandler)

// owners is a table that tests can change. It maps each key to addresses, and the first address is the owner.
type owners struct {
	mu      sync.Mutex
	at      map[string][]string
	changes []chan events.Batch
}

var errNobody = errors.New("nobody owns anything")

func (o *owners) set(key string, addrs ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at == nil {
		o.at = make(map[string][]string)
	}
	o.at[key] = addrs
	o.changed()
}

// changed notifies the subscribers. The caller must hold the mutex.
func (o *owners) changed() {
	for _, c := range o.changes {
		select {
		case c <- events.Batch{}:
		default:
		}
	}
}

func (o *owners) Place(key string) (string, error) {
	if addrs := o.Owners(key, 1); len(addrs) > 0 {
		return addrs[0], nil
	}
	return "", errNobody
}

// Owners returns the addresses of a key. A key that the test has not set has the addresses of the key "".
func (o *owners) Owners(key string, n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	addrs, ok := o.at[key]
	if !ok {
		addrs = o.at[""]
	}
	return addrs[:min(n, len(addrs))]
}

func (o *owners) Members() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, addrs := range o.at {
		all = append(all, addrs...)
	}
	return all
}

func (o *owners) Subscribe(context.Context) <-chan events.Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := make(chan events.Batch, 1)
	o.changes = append(o.changes, c)
	if o.at != nil {
		o.changed()
	}
	return c
}

func (o *owners) table() routinggrpc.Table {
	return routinggrpc.TableOf(o, func(addr string) string { return addr })
}

// service responds with the address of its server. It owns all keys unless rejects is set.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	*grpc.Server
	addr    string
	rejects atomic.Bool
	asked   func()                      // by Owns
	calls   atomic.Int64                // number of calls of Owns
	runs    atomic.Int64                // of handlers
	answer  func(context.Context) error // called before each response
	conns   atomic.Int64                // open connections
	keys    sync.Map                    // that arrived
	change  func(*grpc.Server)          // registers more services
	creds   grpc.ServerOption
}

// at makes a server listen at the address of an earlier server.
func at(addr string) func(*service) { return func(s *service) { s.addr = addr } }

// serve starts a server on a free port. The server stops at the end of the test.
func serve(t *testing.T, changes ...func(*service)) *service {
	t.Helper()
	s := &service{addr: "127.0.0.1:0", creds: grpc.EmptyServerOption{}, asked: func() {}, answer: func(context.Context) error { return nil }}
	for _, change := range changes {
		change(s)
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	check := routinggrpc.Check{Owns: func(key string) bool {
		s.keys.Store(key, true)
		s.calls.Add(1)
		s.asked()
		return !s.rejects.Load()
	}}
	s.Server = grpc.NewServer(s.creds, grpc.StatsHandler(s), grpc.ChainUnaryInterceptor(check.Unary),
		grpc.ChainStreamInterceptor(check.Stream))
	grpc_testing.RegisterTestServiceServer(s.Server, s)
	if s.change != nil {
		s.change(s.Server)
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); ended.Wait() })
	return s
}

// stop stops the server, and waits until the client has noticed. The client must not have other connections.
func (s *service) stop(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	redistest.Until(t, "a connection", func() bool { return conn.GetState() == connectivity.Ready })
	s.Stop()
	redistest.Until(t, "its end", func() bool { return conn.GetState() != connectivity.Ready })
}

// HandleConn implements stats.Handler. It counts open connections.
func (s *service) HandleConn(_ context.Context, c stats.ConnStats) {
	switch c.(type) {
	case *stats.ConnBegin:
		s.conns.Add(1)
	case *stats.ConnEnd:
		s.conns.Add(-1)
	}
}

func (*service) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*service) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*service) HandleRPC(context.Context, stats.RPCStats)                         {}

func (s *service) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	s.runs.Add(1)
	return &grpc_testing.SimpleResponse{ServerId: s.addr}, s.answer(ctx)
}

func (s *service) StreamingOutputCall(
	_ *grpc_testing.StreamingOutputCallRequest,
	stream grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse],
) error {
	s.runs.Add(1)
	if err := s.answer(stream.Context()); err != nil {
		return err
	}
	return stream.Send(s.payload())
}

func (s *service) StreamingInputCall(
	stream grpc.ClientStreamingServer[grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse],
) error {
	s.runs.Add(1)
	for n := int32(0); ; n++ {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if err := s.answer(stream.Context()); err != nil {
				return err
			}
			return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: n})
		}
		if err != nil {
			return err
		}
	}
}

func (s *service) FullDuplexCall(
	stream grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse],
) error {
	s.runs.Add(1)
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.answer(stream.Context())
		}
		if err == nil {
			err = stream.Send(s.payload())
		}
		if err != nil {
			return err
		}
	}
}

func (s *service) payload() *grpc_testing.StreamingOutputCallResponse {
	return &grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: []byte(s.addr)}}
}

// clientOf returns a client that uses the table o, and the client's connection.
func clientOf(t *testing.T, o *owners, changes ...func(*routinggrpc.Config)) (grpc_testing.TestServiceClient, *grpc.ClientConn) {
	t.Helper()
	cfg := routinggrpc.Config{Table: o.table()}
	for _, change := range changes {
		change(&cfg)
	}
	opts, err := routinggrpc.DialOptions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("roost:///", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_testing.NewTestServiceClient(conn), conn
}

// timeout returns a change for clientOf that sets RetryTimeout.
func timeout(d time.Duration) func(*routinggrpc.Config) {
	return func(c *routinggrpc.Config) { c.RetryTimeout = d }
}

// kinds contains a function for each kind of call. Most of these functions return the address of the server.
var kinds = map[string]func(context.Context, grpc_testing.TestServiceClient) (string, error){
	"unary": func(ctx context.Context, c grpc_testing.TestServiceClient) (string, error) {
		resp, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		return resp.GetServerId(), err
	},
	"server stream": func(ctx context.Context, c grpc_testing.TestServiceClient) (string, error) {
		stream, err := c.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			return "", err
		}
		resp, err := stream.Recv()
		if err != nil {
			return "", err
		}
		_, err = stream.Recv()
		return string(resp.GetPayload().GetBody()), ended(err)
	},
	"client stream": func(ctx context.Context, c grpc_testing.TestServiceClient) (string, error) {
		stream, err := c.StreamingInputCall(ctx)
		if err != nil {
			return "", err
		}
		for range 3 {
			if err := stream.Send(&grpc_testing.StreamingInputCallRequest{}); err != nil {
				break // CloseAndRecv returns the reason
			}
		}
		resp, err := stream.CloseAndRecv()
		if err == nil && resp.GetAggregatedPayloadSize() != 3 {
			err = fmt.Errorf("%d of three messages arrived", resp.GetAggregatedPayloadSize())
		}
		return "", err
	},
	"both ways": func(ctx context.Context, c grpc_testing.TestServiceClient) (string, error) {
		stream, err := c.FullDuplexCall(ctx)
		if err != nil {
			return "", err
		}
		var at string
		for range 3 {
			if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
				break // Recv returns the reason
			}
			resp, err := stream.Recv()
			if err != nil {
				return "", err
			}
			at = string(resp.GetPayload().GetBody())
		}
		if err := stream.CloseSend(); err != nil {
			return "", err
		}
		_, err = stream.Recv()
		return at, ended(err)
	},
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return errors.Join(err, errors.New("the stream should have ended"))
}

// unary makes a call, and returns the address of the server that has responded.
func unary(t *testing.T, client grpc_testing.TestServiceClient, key string, opts ...grpc.CallOption) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if key != "" {
		ctx = routinggrpc.WithKey(ctx, key)
	}
	resp, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, opts...)
	return resp.GetServerId(), err
}
