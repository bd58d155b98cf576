package cluster_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// Members see each other's metadata, names and addresses unchanged: a domain name as zone and label, an IPv6 address as
// id.
func TestRealValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := strings.Repeat("\xff\x00", lease.MaxMetaBytes/2)
		fqdn := strings.Repeat("a", 49) + strings.Repeat(".b", 102)
		c := clustertest.New(t, clustertest.Options{})
		c.StartWith("2001:db8::1", clustertest.WithConfig(func(cfg *cluster.Config) { cfg.Meta, cfg.Zone = meta, fqdn }))
		c.StartWith("[2001:db8::2]:7946", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Labels = map[string]string{"host": fqdn}
		}))
		c.WaitAgreed(10 * time.Second)
		if m, ok := c.Agent("[2001:db8::2]:7946").Snapshot().Member("2001:db8::1"); !ok || m.Meta != meta || m.Zone != fqdn {
			t.Errorf("the other sees %+v", m)
		}
		if m, ok := c.Agent("2001:db8::1").Snapshot().Member("[2001:db8::2]:7946"); !ok || m.Labels["host"] != fqdn || m.Meta != "" {
			t.Errorf("the other sees %+v", m)
		}
		err := cluster.Config{ID: "a", Meta: meta + "x"}.WithDefaults().Validate()
		if err == nil || !strings.Contains(err.Error(), "meta has 513 bytes, at most 512") {
			t.Errorf("longer metadata: %v", err)
		}
	})
}
