//go:build linux

package sim_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
)

// BenchmarkRest measures the cost of a cluster whose nodes all start together and then stay idle for 40 seconds.
// scripts/compare.sh also runs this file in the trees of earlier commits, so it only uses functions that exist since
// commit 1c47180.
func BenchmarkRest(b *testing.B) {
	for _, c := range []struct {
		nodes, loss int
	}{{100, 0}, {300, 0}, {300, 20}, {500, 0}} {
		b.Run(fmt.Sprintf("nodes=%d/loss=%d", c.nodes, c.loss), func(b *testing.B) {
			if testing.Short() && c.nodes > 100 {
				b.Skip("takes long")
			}
			for b.Loop() {
				rest(b, c.nodes, float64(c.loss)/100)
			}
		})
	}
}

func rest(b *testing.B, n int, loss float64) {
	b.Helper()
	const settle, while, show = 12 * time.Second, 40 * time.Second, 200 * time.Millisecond
	c := sim.New(sim.Options{Seed: 1, Jitter: 2 * time.Millisecond, Loss: loss})
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%05d", i)
	}
	c.Start(ids...)
	b.ReportMetric(alike(c, ids).Seconds(), "s-to-agree")
	c.Run(settle)
	sent, lost, cpu := totals(c, ids)
	for range while / show {
		c.Run(show)
		for _, id := range ids {
			c.Node(id).View() // as an agent shows it after each round of gossip
		}
	}
	sentThen, lostThen, cpuThen := totals(c, ids)
	each := float64(n) * while.Seconds()
	b.ReportMetric(float64(lostThen-lost), "leases-lost")
	b.ReportMetric(float64(sentThen.Bytes-sent.Bytes)/each/1000, "kB/s")
	b.ReportMetric(float64(sentThen.Packets-sent.Packets)/each, "packets/s")
	b.ReportMetric((cpuThen-cpu).Seconds()*1000/each, "ms-CPU/s")
}

// alike lets time pass until all nodes see each other and have the same table.
func alike(c *sim.Cluster, ids []string) time.Duration {
	next := 0
	took, _ := c.RunUntil(func() bool {
		first := c.Node(ids[0]).View().Table
		for range ids {
			p := c.Node(ids[next])
			if t := p.View().Table; t == nil || t.Digest() != first.Digest() || len(p.View().Live.Members) != len(ids) {
				return false
			}
			next = (next + 1) % len(ids)
		}
		return true
	}, time.Minute)
	return took
}

// totals returns what all nodes sent, the leases that they lost, and the CPU of this
// process.
func totals(c *sim.Cluster, ids []string) (sent sim.Traffic, lost uint64, cpu time.Duration) {
	for _, id := range ids {
		p := c.Node(id)
		sent.Packets += p.Sent().Packets
		sent.Bytes += p.Sent().Bytes
		lost += p.View().Stats.Expired
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sent, lost, cpu
}
