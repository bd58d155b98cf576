package clustertest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

func TestSmoke(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				c := clustertest.New(t, clustertest.Options{})
				var ids []string
				for i := range n {
					ids = append(ids, fmt.Sprintf("n%02d", i))
				}
				c.Start(ids...)
				t.Log("started", time.Since(begin))
				t.Log("agreed", c.WaitAgreed(5*time.Second))
				time.Sleep(20 * time.Second)
				c.Check()
				c.Start("zz")
				t.Log("join", c.WaitAgreed(5*time.Second))
				c.Crash(ids[1])
				t.Log("crash", c.WaitAgreed(8*time.Second))
				b := time.Now()
				c.Leave(ids[2])
				t.Log("leave took", time.Since(b))
				t.Log("leave", c.WaitAgreed(8*time.Second))
				c.Restart(ids[0])
				t.Log("restart", c.WaitAgreed(8*time.Second))
				c.Pause("zz")
				time.Sleep(10 * time.Second)
				c.Resume("zz")
				t.Log("resume", c.WaitAgreed(8*time.Second))
				t.Log(c.Network())
			})
		})
	}
}
