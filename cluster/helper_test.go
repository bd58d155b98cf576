package cluster_test

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// sees reports whether a node considers another node alive.
func sees(c *clustertest.Cluster, id, other string) bool {
	return slices.ContainsFunc(c.Agent(id).Members(), func(m *cluster.Member) bool { return string(m.ID) == other })
}

// logbook keeps the log lines of all agents.
type logbook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *logbook) handler() slog.Handler { return slog.NewTextHandler(l, nil) }
