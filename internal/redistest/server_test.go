package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestWaitReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	master := Start(t)
	replica := Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	master.WaitReplicas(1)
	replica.Pause()
	master.Do("SET", "k", "v")
	now := offset(masterOffset.FindStringSubmatch(master.Do("INFO", "replication")))
	if err := master.caughtUp(1, now); err == nil {
		t.Error("a paused replica has caught up")
	}
	replica.Resume()
	master.WaitReplicas(1)
	if got := replica.Do("GET", "k"); got != "v" {
		t.Errorf("a replica that has caught up has %q", got)
	}
}

// TestPortTaken: another process takes the port that Restart needs, and releases it after a while.
func TestPortTaken(t *testing.T) {
	s := Start(t)
	s.Kill()
	l, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.exec(); err == nil {
		t.Fatal("another process listens, but exec reports a start")
	}
	_ = l.Close()
	s.Restart()
}

// TestMissing: if no server can be started, a test fails immediately and says what to do.
func TestMissing(t *testing.T) {
	old := filepath.Join(t.TempDir(), "redis-6") // as Redis 6 does
	script := "#!/bin/sh\necho 'Bad directive or wrong number of arguments'\nexit 1\n"
	if err := os.WriteFile(old, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	for server, want := range map[string]string{
		"":           "apt-get install redis-tools",
		"no-such-db": "no-such-db",
		old:          "Bad directive",
	} {
		t.Setenv(serverEnv, server)
		f := &failing{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Start(f)
		}()
		<-done
		if !strings.Contains(f.message, want) {
			t.Errorf("without Redis, and with %q instead, the test ends with %q", server, f.message)
		}
	}
}

// failing records the message of a failed test.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
