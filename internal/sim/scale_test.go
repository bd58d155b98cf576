package sim_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
)

func TestScaleTry(t *testing.T) {
	if os.Getenv("SCALE") == "" {
		t.Skip()
	}
	n, _ := strconv.Atoi(os.Getenv("SCALE"))
	loss, _ := strconv.ParseFloat(os.Getenv("LOSS"), 64)
	secs, _ := strconv.Atoi(os.Getenv("SECS"))
	c := sim.New(sim.Options{Loss: loss, Seed: 1, Jitter: 2 * time.Millisecond})
	t0 := time.Now()
	c.Start(ids(n)...)
	took, err := c.Agree(60 * time.Second)
	fmt.Println("agree", took, err, "real", time.Since(t0))
	exp := func() (e, p, b, ask, drifts uint64, old time.Duration) {
		for _, id := range c.IDs() {
			pr := c.Node(id)
			v := pr.View()
			e += v.Stats.Expired
			ask += v.Stats.AgesApplied
			drifts += v.Stats.Drifts
			p += uint64(pr.Sent().Packets)
			b += uint64(pr.Sent().Bytes)
			for _, m := range v.Live.Members {
				old = max(old, pr.Now().Sub(m.Renewed))
			}
		}
		return
	}
	e0, p0, b0, _, d0, _ := exp()
	fmt.Println("after start: expired", e0, "kB a node", b0/uint64(n)/1000, "pkts", p0/uint64(n))
	var oldest time.Duration
	t0 = time.Now()
	for range secs {
		c.Run(time.Second)
		_, _, _, _, _, old := exp()
		oldest = max(oldest, old)
	}
	e1, p1, b1, a, d1, _ := exp()
	fmt.Println("expired", e1-e0, "kB/s", float64(b1-b0)/float64(n)/float64(secs)/1000, "p/s", float64(p1-p0)/float64(n)/float64(secs), "ages", a, "oldest", oldest, "drifts", d1-d0, "real", time.Since(t0))
}
