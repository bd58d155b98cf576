package survey

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestKnock: Knock distinguishes the states of lost members' ports, and a live agent does not count the attempts as
// hostile.
func TestKnock(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	live, err := cluster.Start(t.Context(), cluster.Config{
		ID: "live", Bind: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Close() })
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections, as for a paused process
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	free := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	lost := []clusterhttp.Lost{
		{Profile: lease.Profile{ID: "runs", Addr: live.Addr()}, Reason: lease.Expired},
		{Profile: lease.Profile{ID: "paused", Addr: listener.Addr().String()}, Reason: lease.Expired},
		{Profile: lease.Profile{ID: "ended", Addr: free}, Reason: lease.Crashed},
		{Profile: lease.Profile{ID: "left", Addr: free}, Reason: lease.Departed},
		{Profile: lease.Profile{ID: "named", Addr: "localhost:1"}, Reason: lease.Crashed},
	}
	all := map[lease.NodeID]doctor.Port{
		"runs": doctor.PortAnswers, "paused": doctor.PortSilent, "ended": doctor.PortRefused, "named": doctor.PortUnknown,
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx        context.Context
		base, self string // API and gossip address of the agent that was asked
		want       map[lease.NodeID]doctor.Port
	}{
		"told apart": {t.Context(), "127.0.0.1:8401", live.Addr(), all},
		"no member answers this machine": {t.Context(), "127.0.0.1:8401", free, map[lease.NodeID]doctor.Port{
			"runs": doctor.PortAnswers, "paused": doctor.PortSilent, "named": doctor.PortUnknown,
		}},
		"loopback of another machine": {t.Context(), "10.0.0.1:8401", live.Addr(), map[lease.NodeID]doctor.Port{}},
		"no time": {ended, "127.0.0.1:8401", live.Addr(), map[lease.NodeID]doctor.Port{
			"runs": doctor.PortUnknown, "paused": doctor.PortUnknown, "ended": doctor.PortUnknown, "named": doctor.PortUnknown,
		}},
	} {
		s := &session.Session{Client: &clusterhttp.Client{Base: c.base}}
		if diff := cmp.Diff(c.want, Knock(c.ctx, s, c.self, lost, func(int, int) {})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if s := live.Snapshot().Stats; len(live.Rejections()) > 0 || s.GuardDropped > 0 {
		t.Errorf("the live agent has rejected %v, and dropped %d", live.Rejections(), s.GuardDropped)
	}
	_ = live.Close() // so that the log is complete
	if strings.Contains(log.String(), "msg=memberlist") {
		t.Errorf("the live agent complains:\n%s", log.String())
	}
}
