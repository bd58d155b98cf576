package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestServer(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		kept string // the data after Restart
	}{
		{"in memory", nil, ""},
		{"on disk", []string{"--appendonly", "yes"}, "v"},
		{"with a password", []string{"--requirepass", "p:w"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Start(t, c.args...)
			set(t, s.URL(), nil)
			if got := s.Do("GET", "k"); got != "v" {
				t.Fatalf("GET gives %q", got)
			}
			s.Kill()
			if _, err := s.Try("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("after Kill: %v", err)
			}
			addr := s.Addr()
			s.Restart()
			if got := s.Do("GET", "k"); got != c.kept || s.Addr() != addr {
				t.Errorf("after Restart at %s (was %s): %q, want %q", s.Addr(), addr, got, c.kept)
			}
		})
	}
}

// set writes through a client that only has the URL.
func set(t *testing.T, url string, opt func(*rueidis.ClientOption)) {
	t.Helper()
	o := rueidis.MustParseURL(url)
	if opt != nil {
		opt(&o)
	}
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), c.B().Set().Key("k").Value("v").Build()).Error(); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

func TestDo(t *testing.T) {
	s := Start(t)
	for _, c := range []struct{ command, want string }{
		{"RPUSH l a b", "2"},
		{"LRANGE l 0 -1", "a\nb"},
		{"MGET x y", "\n"},
		{"GET x", ""},
		{"HELLO", "server\n"},
		{"PING", "PONG"},
		{"LPUSH", "ERR wrong number"},
	} {
		got, err := s.Try(strings.Fields(c.command)...)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s gives %q, want %q", c.command, got, c.want)
		}
	}
}

func TestCommands(t *testing.T) {
	s := Start(t)
	s.Do("GET", "x")
	s.ResetStats()
	s.Do("SET", "x", "1")
	s.Do("EVAL", "redis.call('SET', 'x', 2)", "0")
	s.Do("CLIENT", "LIST")
	got := s.Commands()
	for name, want := range map[string]int64{"get": 0, "set": 2, "eval": 1, "client|list": 1} {
		if got[name] != want {
			t.Errorf("%d of %s, want %d", got[name], name, want)
		}
	}
}

func TestWaitReplicas(t *testing.T) {
	long(t)
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

func TestPause(t *testing.T) {
	s := Start(t)
	conn := ping(t, s.Addr())
	pong(t, conn)
	s.Pause()
	_, _ = fmt.Fprint(conn, "PING\r\n")
	fresh := ping(t, s.Addr())
	silent(t, conn)
	silent(t, fresh)
	s.Resume()
	pong(t, conn)
	pong(t, fresh)
	s.Pause()
	s.Restart() // also kills a paused process
}

// ping sends the command on a new connection.
func ping(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprint(conn, "PING\r\n")
	return conn
}

func pong(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 100)
	if n, err := conn.Read(buf); string(buf[:n]) != "+PONG\r\n" {
		t.Fatalf("answer %q, %v", buf[:n], err)
	}
}

// silent waits 50 ms for a reply, which is a thousand times its usual duration.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 100)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes and %v, want none and a connection that stays open", n, err)
	}
}

func TestFaults(t *testing.T) {
	s := Start(t)
	s.Do("SET", "k", "v")
	fails := func(want string, args ...string) {
		t.Helper()
		if _, err := s.Try(args...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v gives %v, want %s", args, err, want)
		}
	}
	s.ReadOnly(true)
	fails("READONLY", "SET", "k", "w")
	s.Do("GET", "k")
	s.ReadOnly(false)
	s.Do("SET", "k", "v2")

	s.Full(true)
	fails("OOM", "SET", "k", "w")
	s.Do("GET", "k")
	s.Full(false)
	s.Do("SET", "k", "v3")

	finish := s.RestartLoading()
	fails("LOADING", "GET", "k")
	finish()
	if got := s.Do("GET", "k"); got != "v3" || s.Do("DBSIZE") != "1" {
		t.Errorf("after loading: %q and %s keys", got, s.Do("DBSIZE"))
	}
	s.Restart()
	if got := s.Do("DBSIZE"); got != "0" {
		t.Errorf("%s keys after Restart", got)
	}
}

func TestTLS(t *testing.T) {
	s := StartTLS(t)
	set(t, s.URL(), func(o *rueidis.ClientOption) { o.TLSConfig = s.TLSConfig() })
	if got := s.Do("ACL", "WHOAMI"); got != user {
		t.Errorf("user %q", got)
	}
	if _, err := rueidis.NewClient(rueidis.MustParseURL(s.URL())); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a client without the authority: %v", err)
	}
	o := rueidis.MustParseURL(s.URL())
	o.TLSConfig, o.Username, o.Password = s.TLSConfig(), "", ""
	if c, err := rueidis.NewClient(o); err == nil {
		c.Close()
		t.Error("a client without a user is accepted")
	}
}

// TestPortTaken holds the port that Restart needs for a while.
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

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for server, want := range map[string]string{
		"":           "apt-get install redis-tools",
		"no-such-db": "no-such-db",
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
