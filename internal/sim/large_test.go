package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// TestLargeRecords checks records that nearly fill a packet, with the longest zone and metadata that an application may
// set. They spread as fast as small records, even if a fifth of the packets is lost, and no lease ends because of them.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	large := func(c *node.Config) {
		c.Self.Zone, c.Self.Meta = strings.Repeat("z", lease.MaxZoneBytes), strings.Repeat("m", lease.MaxMetaBytes)
		c.Self.Labels = map[string]string{"host": strings.Repeat("h", 150)}
	}
	for _, loss := range []float64{0, 0.2} {
		for _, n := range []int{30, 100} {
			t.Run(fmt.Sprintf("%d nodes at loss %v", n, loss), func(t *testing.T) {
				t.Parallel()
				trial := sim.Trial{Nodes: n, Rest: 20 * time.Second, Crash: 1}
				m := measure(t, sim.Options{Seed: 1, Loss: loss, Config: large}, trial)
				if m.FalseExpiries > 0 || m.OldestAge > ttl*3/4 || m.Packets > 25 {
					t.Errorf("%+v", m)
				}
				for change, took := range map[string]time.Duration{
					"mass start": m.Agree.Start,
					"join":       m.Agree.Join,
					"leave":      m.Agree.Leave,
					"crash":      m.Agree.Crash,
				} {
					if took == sim.Never || took > 3*time.Second {
						t.Errorf("agreement %v after a %s", took, change)
					}
				}
			})
		}
	}
}
