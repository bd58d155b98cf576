package routinggrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/routinggrpc"
	"github.com/roost-cluster/roost/internal/redistest"
)

const rooms = 500

// load makes calls while servers stop and start.
type load struct {
	t      *testing.T
	client grpc_testing.TestServiceClient
	killed atomic.Pointer[string] // address of the server that was killed

	calls, again, opened, broken, lost atomic.Int64
}

// Five processes run servers with embedded agents. They serve 200 calls per second and 50 streams. Meanwhile, the
// processes are restarted one after the other, and one of them is killed. Calls fail only if the killed server may have
// begun them, and only owners respond.
func TestRollingServers(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take seconds")
	}
	members := make([]*member, 5)
	var agents []string
	for i := range members {
		free := func() string { return fmt.Sprint("127.0.0.1:", redistest.FreePort(t)) }
		members[i] = &member{id: fmt.Sprint("n", i), addr: free(), api: free()}
		members[i].start(t, members[0].Gossip)
		agents = append(agents, members[i].api)
	}
	f, err := routing.Start(t.Context(), routing.Config{Agents: agents[3:], Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	<-f.Ready()
	opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: routinggrpc.FromClient(f)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("roost:///", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	x := &load{t: t, client: grpc_testing.NewTestServiceClient(conn)}
	x.settles(f, len(members))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	asking.Go(func() { x.call(ctx) })
	for i := range 50 {
		asking.Go(func() {
			for ctx.Err() == nil {
				x.stream(ctx, i)
			}
		})
	}
	began := time.Now()
	for i, m := range members {
		if i == 1 {
			x.killed.Store(&m.addr)
			if err := m.Kill(); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := m.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-m.Done()
			if !m.State().Success() {
				t.Errorf("%s: %v\n%s", m.id, m.State(), m.Log)
			}
		}
		x.settles(f, len(members)-1)
		m.start(t, members[(i+1)%len(members)].Gossip)
		x.settles(f, len(members))
		before := x.calls.Load()
		redistest.Until(t, "50 more calls", func() bool { return x.calls.Load() >= before+50 })
	}
	stop()
	asking.Wait()
	if x.calls.Load() < 200 || x.opened.Load() < 50 {
		t.Errorf("%d calls, %d streams", x.calls.Load(), x.opened.Load())
	}
	t.Logf("%d calls, %.0f a second, %d of them rejected and sent again; %d streams opened, %d of them broken by a change; %d calls and streams lost in the killed server",
		x.calls.Load(), float64(x.calls.Load())/time.Since(began).Seconds(), x.again.Load(), x.opened.Load(), x.broken.Load(), x.lost.Load())
}

// settles waits until the routing client knows n members and all of them own rooms. It then checks that the owner of
// each room responds.
func (x *load) settles(f *routing.Client, n int) {
	x.t.Helper()
	redistest.Until(x.t, fmt.Sprint(n, " members that own rooms"), func() bool {
		owners := make(map[string]bool)
		for i := range rooms {
			if owner, err := f.Place(fmt.Sprint(i)); err == nil {
				owners[owner.APIAddr] = true
			}
		}
		return len(owners) == n && len(f.Members()) == n
	})
	var wait sync.WaitGroup
	for i := range rooms {
		wait.Go(func() {
			key := fmt.Sprint(i)
			owner, err := f.Place(key)
			if err != nil {
				x.t.Error(err)
				return
			}
			if at, err := unary(x.t, x.client, key); err != nil || !strings.HasPrefix(at, string(owner.ID)) {
				x.t.Errorf("%s answers for a room of %s: %v", at, owner.ID, err)
			}
		})
	}
	wait.Wait()
}

// call makes 200 calls per second, or fewer on a slow machine.
func (x *load) call(ctx context.Context) {
	var wait sync.WaitGroup
	defer wait.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		wait.Go(func() {
			var to peer.Peer
			x.calls.Add(1)
			at, err := unary(x.t, x.client, fmt.Sprint(i%rooms), grpc.Peer(&to))
			x.judge(&to, at, err)
		})
	}
}

// judge reports responses from servers that do not own the room, and failed calls that no server can have begun.
func (x *load) judge(to *peer.Peer, at string, err error) {
	killed := x.killed.Load()
	switch {
	case err == nil:
		if strings.Contains(at, "not the owner") {
			x.t.Error(at)
		}
		if strings.Contains(at, "sent again") {
			x.again.Add(1)
		}
	case status.Code(err) == codes.Unavailable && to.Addr != nil && killed != nil && to.Addr.String() == *killed:
		x.lost.Add(1)
	default:
		x.t.Errorf("%v of %v", err, to.Addr)
	}
}

// stream opens a stream and exchanges a message every 20 ms, until it has exchanged a hundred messages or the room
// moves.
func (x *load) stream(ctx context.Context, i int) {
	var to peer.Peer
	running, cancel := context.WithCancel(routinggrpc.WithKey(context.WithoutCancel(ctx), fmt.Sprint(i)))
	defer cancel()
	stream, err := x.client.FullDuplexCall(running, grpc.Peer(&to))
	for sent := 0; err == nil && sent < 100 && ctx.Err() == nil; sent++ {
		_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{}) // Recv returns the error
		var resp *grpc_testing.StreamingOutputCallResponse
		resp, err = stream.Recv()
		if sent == 0 {
			x.judge(&to, string(resp.GetPayload().GetBody()), err)
			x.opened.Add(1)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if err != nil {
		x.broken.Add(1)
		if status.Code(err) != codes.Unavailable {
			x.t.Errorf("a stream ends with %v", errors.Unwrap(err))
		}
		return
	}
	_ = stream.CloseSend()
	_, _ = stream.Recv()
}
