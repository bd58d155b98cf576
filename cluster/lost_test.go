package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// lostAt lists the lost members that a node knows: id, reason, and whether the member owned anything.
func lostAt(c *clustertest.Cluster, id string) (lost []string) {
	for _, l := range c.Agent(id).Snapshot().Lost() {
		lost = append(lost, fmt.Sprint(l.ID, " ", l.Reason, " ", l.Partitions > 0))
	}
	return lost
}

// A lost member stays in the list, with the reason and what it owned, until it returns or 30 minutes have passed.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a", "b", "c", "d", "e")
		c.WaitAgreed(10 * time.Second)
		time.Sleep(10 * time.Second)
		want := func(what string, want ...string) {
			t.Helper()
			if got := lostAt(c, "a"); !slices.Equal(got, want) {
				t.Errorf("%s: lost %q; want %q", what, got, want)
			}
		}
		want("at first")
		owned, crashed := len(c.Agent("b").Owned()), time.Now()
		c.Crash("b")
		c.WaitAgreed(time.Second)
		want("after a crash", "b crashed true")
		if b := c.Agent("a").Snapshot().Lost()[0]; b.Partitions != owned || b.Left() || b.Addr == "" || b.At.Before(crashed) {
			t.Errorf("%+v, %+v; want %d partitions, its address, and a time since %v", b, b.Member, owned, crashed)
		}
		time.Sleep(time.Minute)
		c.Leave("c")
		c.WaitAgreed(time.Second)
		want("after a leave", "c left false", "b crashed true")
		if c := c.Agent("a").Snapshot().Lost()[0]; !c.Left() || c.Addr == "" {
			t.Errorf("%+v, %+v; want a member that left, and its address", c, c.Member)
		}
		c.Restart("d")
		c.WaitAgreed(20 * time.Second)
		want("after a restart", "c left false", "b crashed true")
		c.Start("b")
		c.WaitAgreed(20 * time.Second)
		want("once it is back", "c left false")
		for _, id := range []string{"b", "d", "e"} { // with a alone, the test takes less time
			c.Leave(id)
		}
		time.Sleep(cluster.LostFor + time.Second)
		want("30 minutes later")
	})
}

// The log warns about a member that ended without a leave message, but not about a member that left or restarted
// immediately.
func TestLossIsLoggedAsWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		c := clustertest.New(t, clustertest.Options{Log: log.handler()})
		c.Start("a", "b", "c", "d", "e")
		c.WaitAgreed(10 * time.Second)
		c.Crash("b")
		c.WaitAgreed(20 * time.Second)
		c.Leave("d")
		c.WaitAgreed(20 * time.Second)
		c.Restart("e")
		c.WaitAgreed(20 * time.Second)
		c.Split([]string{"a", "e"}, []string{"c"})
		time.Sleep(20 * time.Second)
		for member, want := range map[string]string{
			"b": `level=WARN msg="member lost" node=a member=b`, "c": `level=WARN msg="member lost" node=a member=c`,
			"d": `level=INFO msg="member left" node=a member=d reason=left`, "e": `level=INFO msg="member left" node=a member=e reason=replaced`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the end of %s is not logged as %s:\n%s", member, want, log.String())
			}
		}
	})
}
