package routinggrpc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/leak"
)

// memberVar is an environment variable with the value "id addr api join". If it is set, this binary runs a server with
// an embedded agent instead of tests.
const memberVar = "FOLLOWGRPC_TEST_MEMBER"

func TestMain(m *testing.M) {
	if of := os.Getenv(memberVar); of != "" {
		if err := beMember(of); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	watchPickers()
	leak.Main(m)
}

// beMember runs a server until SIGTERM. The server then drains, waits for its calls, and leaves.
func beMember(of string) error {
	var id, addr, apiAddr, join string
	if _, err := fmt.Sscan(of, &id, &addr, &apiAddr, &join); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	apiListener, err := net.Listen("tcp", apiAddr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := cluster.Config{
		ID: id, Bind: "127.0.0.1:0", APIAddr: l.Addr().String(), Network: cluster.Local, LeaseTTL: 30 * time.Second, Partitions: 64, Log: quiet,
	}
	if join != "-" {
		cfg.Join = []string{join}
	}
	agent, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = agent.Close() }()
	<-agent.Ready()
	api := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	defer func() { _ = api.Close() }()
	go func() { _ = api.Serve(apiListener) }()

	s := &room{id: id, agent: agent}
	check := routinggrpc.Check{Owns: agent.Arrived}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(s.arrive, check.Unary), grpc.ChainStreamInterceptor(s.arriveStream, check.Stream))
	grpc_testing.RegisterTestServiceServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // standard input is closed when the test ends
		stop()
	}()
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("agent running", "gossip", agent.Addr(), "http", apiListener.Addr().String())
	<-ctx.Done()
	if err := agent.Drain(context.Background()); err != nil {
		return err
	}
	s.drained.Store(true)
	srv.GracefulStop()
	return agent.Leave(context.Background())
}

// room is a server whose keys are rooms.
type room struct {
	grpc_testing.UnimplementedTestServiceServer
	id      string
	agent   *cluster.Agent
	drained atomic.Bool
}

// owns reports whether the server owns the key of a call.
func (r *room) owns(ctx context.Context) bool {
	key := metadata.ValueFromIncomingContext(ctx, routinggrpc.Header)
	return !r.drained.Load() && r.agent.IsOwner(key[0])
}

// strayKey is the context key of a flag that is true if the server did not own the room before Check ran.
type strayKey struct{}

func (r *room) arrive(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, strayKey{}, !r.owns(ctx)), req)
}

func (r *room) arriveStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	return handler(srv, &arrived{stream, context.WithValue(ctx, strayKey{}, !r.owns(ctx))})
}

type arrived struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *arrived) Context() context.Context { return a.ctx }

// answer returns the id of the server, with a remark if the server did not own the room or the call was sent again. A
// room that moves after Check is not a problem.
func (r *room) answer(ctx context.Context) string {
	switch {
	case ctx.Value(strayKey{}) == true && !r.owns(ctx):
		return r.id + " is not the owner"
	case len(metadata.ValueFromIncomingContext(ctx, "grpc-previous-rpc-attempts")) > 0:
		return r.id + ", and the call was sent again"
	}
	return r.id
}

func (r *room) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{ServerId: r.answer(ctx)}, nil
}

// FullDuplexCall answers each message, and ends the stream with UNAVAILABLE when the room has moved.
func (r *room) FullDuplexCall(
	stream grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse],
) error {
	for first := true; ; first = false {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if !first && !r.owns(stream.Context()) {
			return status.Error(codes.Unavailable, "the room has moved")
		}
		body := []byte(r.answer(stream.Context()))
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: body}}); err != nil {
			return err
		}
	}
}

// member is a process that runs beMember.
type member struct {
	*agentproc.Process
	agentproc.Addrs
	id, addr, api string // the addresses are the same after a restart
}

// start starts the process of a member.
func (m *member) start(t *testing.T, join string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s", memberVar, m.id, m.addr, m.api, cmp.Or(join, "-")))
	m.Process = agenttest.Start(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Timeout)
	defer cancel()
	var err error
	if m.Addrs, err = m.Await(ctx); err != nil {
		t.Fatalf("%s: %v\n%s", m.id, err, m.Log)
	}
}
