package main

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// states opens connections that each send a complete exchange, with the largest state that an agent decodes.
func states(ctx context.Context, t *testing.T, s *scene) {
	k := spy(t, s.a.Gossip, s.key)
	m := forger{k, s.key}.asB()
	m.Heartbeats = slices.Repeat([]lease.Heartbeat{{Handle: 1, At: m.Stamp, Renewed: m.Stamp, State: lease.Active}}, lease.MaxNodes)
	m.Handoff = make([]byte, lease.MaxMessageBytes-len(lease.Encode(m))-10)
	state := lease.Encode(m)
	if _, err := lease.Decode(state); err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32([]byte("\x06\x83\xa5Nodes\x00\xa4Join\xc2\xacUserStateLen\xce"), uint32(len(state)))
	exchange := s.key.stream(append(head, state...))
	for range 64 {
		s.wait.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", s.a.Gossip)
				if err != nil {
					return
				}
				s.sent.Add(1)
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				_, _ = conn.Write(exchange)
				_, _ = conn.Read(make([]byte, 100))
				_ = conn.Close()
			}
		})
	}
}
