package redistest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// binary is the Redis server under another name: it goes by the name that it is
// called with. Debian has it under this one in redis-tools, while its package
// redis-server would also start a service.
const (
	binary  = "redis-check-rdb"
	install = "Redis 7 is not installed: run scripts/deps.sh, or apt-get install redis-tools"
)

// serverEnv names the program to run instead, as in REDIS_SERVER=valkey-server.
const serverEnv = "REDIS_SERVER"

// Server is a redis-server process.
type Server struct {
	tb       testing.TB
	dir      string
	port     int
	cluster  bool
	bus      int    // the other port of a node of a cluster
	config   string // file, "" for none
	args     []string
	user     string
	password string
	tls      *tls.Config
	caFile   string
	proc     *process // the last one that was started
	paused   bool
}

type process struct {
	*exec.Cmd
	done chan struct{} // closed once it has ended
}

// Start starts a server on its own. args go to redis-server after those of the
// harness and override them, as in Start(t, "--maxmemory", "1mb"). With
// "--requirepass" the URL has the password. It takes about 50 ms.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{args: args}
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		s.password = args[i+1]
	}
	s.launch(tb)
	s.ready()
	return s
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is in the form that rueidis.ParseURL reads, with user and password.
func (s *Server) URL() string { return s.urlOf(s.Addr()) }

func (s *Server) urlOf(addr string) string {
	u := url.URL{Scheme: "redis", Host: addr}
	if s.tls != nil {
		u.Scheme = "rediss"
	}
	if s.password != "" {
		u.User = url.UserPassword(s.user, s.password)
	}
	return u.String()
}

// Kill kills the process as kill -9 does. Its port refuses connections then.
func (s *Server) Kill() {
	s.tb.Helper()
	_ = s.proc.Process.Kill() // fails only when it has ended
	<-s.proc.done
}

// Restart kills the process if it runs, starts it anew on the same port and waits
// until it has loaded its data. A master that comes back empty before it is
// replaced empties its replicas, too.
func (s *Server) Restart() {
	s.tb.Helper()
	s.restart()
	s.ready()
}

func (s *Server) restart(extra ...string) {
	s.tb.Helper()
	s.Kill()
	Eventually(s.tb, "restart of "+s.Addr(), func() error { return s.exec(extra...) })
}

// Pause stops the process: its connections stay open, new ones are taken by the
// kernel, and nothing is answered.
func (s *Server) Pause() { s.tb.Helper(); s.signal(stop); s.paused = true }

// Resume ends Pause. What was sent meanwhile is carried out.
func (s *Server) Resume() { s.tb.Helper(); s.signal(resume); s.paused = false }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.proc.Process.Signal(sig); err != nil {
		s.tb.Fatalf("redis %s: %v", s.Addr(), err)
	}
}

// up tells whether there is a process and it is not paused.
func (s *Server) up() bool {
	select {
	case <-s.proc.done:
		return false
	default:
		return !s.paused
	}
}

// launch starts the process on a free port, arranges for its end, and does not
// wait until it is ready. Whoever starts several launches all of them first.
func (s *Server) launch(tb testing.TB) {
	tb.Helper()
	s.tb, s.dir = tb, tb.TempDir() // before Cleanup: the directory is to outlive the process
	tb.Cleanup(func() {
		if s.proc == nil {
			return
		}
		s.Kill()
		if tb.Failed() {
			tb.Logf("log of redis %s:\n%s", s.Addr(), s.log())
		}
	})
	Eventually(tb, "start of redis", func() error {
		s.port, s.bus = freePort(tb), freePort(tb)
		return s.exec()
	})
}

// exec starts the process and returns nil once it listens. The port may be taken
// between the look for a free one and now; the process ends then.
func (s *Server) exec(extra ...string) error {
	s.tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(serverEnv), binary))
	if err != nil {
		s.tb.Fatalf("%v: %s; %s names another server", err, install, serverEnv)
	}
	cmd := exec.Command(path, append(s.arguments(), extra...)...)
	cmd.Args[0] = "redis-server"
	out := new(bytes.Buffer) // what is wrong with an argument; all else goes to the log
	cmd.Stdout, cmd.Stderr = out, out
	dieWithTest(cmd)
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("start redis: %v", err)
	}
	p := &process{Cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	s.proc, s.paused = p, false
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if s.answers() {
			return nil
		}
		if !s.up() {
			return fmt.Errorf("%s ended: %v\n%s%s", s.Addr(), cmd.ProcessState, out, s.log())
		}
	}
	s.tb.Fatalf("waited %v for redis at %s to answer", patience, s.Addr())
	return nil
}

func (s *Server) arguments() []string {
	port := strconv.Itoa(s.port)
	args := []string{"--port", port}
	if s.tls != nil {
		args = []string{"--port", "0", "--tls-port", port}
	}
	args = append(args, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"))
	if s.config != "" { // of a sentinel, which knows nothing of data
		return slices.Concat([]string{s.config}, args, s.args)
	}
	if s.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.bus))
	}
	return slices.Concat(args, []string{
		"--save", "", "--enable-debug-command", "local",
		"--repl-diskless-sync-delay", "0", // else a replica gets no data for 5 s
		"--rdb-del-sync-files", "yes", // else a replica's Restart finds the copy
	}, s.args)
}

// answers tells whether this process, and not another that was quicker to take the
// port, answers there. It does while it loads its data, too.
func (s *Server) answers() bool {
	// Not for long: when another one has the port and is silent, this one has ended.
	info, err := s.tryFor(500*time.Millisecond, "INFO", "server")
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.proc.Process.Pid))
}

// ready waits until the data are loaded.
func (s *Server) ready() {
	s.tb.Helper()
	Eventually(s.tb, "redis to be ready", func() error {
		_, err := s.Try("PING")
		return err
	})
}

func (s *Server) log() string {
	const enough = 4 << 10
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-enough):])
}

// freePort looks below the range from which the system gives ports to outgoing
// connections: none of those can take the port while its server is down.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no free port from 20000 to 32000")
	return 0
}
