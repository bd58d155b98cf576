package cluster_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// logbook keeps the lines of all agents.
type logbook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *logbook) handler() slog.Handler { return slog.NewTextHandler(l, nil) }

// balance returns what node a told of its balance, and forgets all.
func (l *logbook) balance() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		if strings.Contains(line, "node=a ") && strings.Contains(line, "spread") {
			found = append(found, line)
		}
	}
	l.out.Reset()
	return found
}

// evenOrNot returns what makes the table of a cluster uneven, and even again: two
// nodes share eight partitions badly while the second is not drained.
func evenOrNot(t *testing.T, book *logbook) (turn func()) {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{
		Log: book.handler(), Config: func(c *cluster.Config) { c.Partitions = 8 },
	})
	c.Start("a")
	time.Sleep(5 * time.Minute)
	if lines := book.balance(); len(lines) > 0 {
		t.Errorf("a single node tells of its balance: %s", lines)
	}
	b := c.StartWith("b", clustertest.WithConfig(func(c *cluster.Config) { c.StartDraining = true }))
	draining := true
	return func() {
		change := b.Drain
		if draining {
			change = b.Undrain
		}
		draining = !draining
		if err := change(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cv := c.Agent("a").Snapshot().Table.Balance().CV; (cv > 0.15) != !draining {
			t.Fatalf("draining: %v, and the coefficient of variation is %.2f", draining, cv)
		}
	}
}

func TestBalanceIsLogged(t *testing.T) { // S4.8
	synctest.Test(t, func(t *testing.T) {
		var book logbook
		turn := evenOrNot(t, &book)
		for range 3 {
			turn()
			time.Sleep(10 * time.Minute)
			warned := book.balance()
			if len(warned) != 1 || !strings.Contains(warned[0], "level=WARN") || !strings.Contains(warned[0], "raise Partitions from 8 to ") {
				t.Errorf("of a table that is uneven, it tells: %s", warned)
			}
			turn()
			time.Sleep(10 * time.Minute)
			if told := book.balance(); len(told) != 1 || !strings.Contains(told[0], "level=INFO") || !strings.Contains(told[0], "evenly again") {
				t.Errorf("of a table that is even again, it tells: %s", told)
			}
		}
	})
}

// Where nodes come and go, the log does not fill, and its last line is true.
func TestBalanceInChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logbook
		turn := evenOrNot(t, &book)
		for range 201 { // ends uneven
			turn()
			time.Sleep(3 * time.Second)
		}
		time.Sleep(2 * time.Minute)
		lines := book.balance()
		if n := len(lines); n < 2 || n > 14 {
			t.Errorf("%d lines in twelve minutes of churn", n)
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "unevenly") {
			t.Errorf("the last line is %s", last)
		}
		for i := 1; i < len(lines); i++ {
			if strings.Contains(lines[i], "unevenly") == strings.Contains(lines[i-1], "unevenly") {
				t.Errorf("told twice: %s", lines[i-1:i+1])
			}
		}
	})
}
