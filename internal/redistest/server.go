package redistest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// binary is the Redis server under another name, because one binary contains several programs and selects one
// by argv[0]. Debian's package redis-tools installs it under this name. The package redis-server would also
// start a service.
const (
	binary  = "redis-check-rdb"
	install = "Redis 7 is not installed: run scripts/deps.sh, or apt-get install redis-tools"
)

// serverEnv is the environment variable with the name of another server program, for example
// REDIS_SERVER=valkey-server.
const serverEnv = "REDIS_SERVER"

// Server is a redis-server process.
type Server struct {
	tb       testing.TB
	dir      string
	port     int
	cluster  bool
	bus      int    // cluster bus port of a cluster node
	config   string // path of the configuration file, "" if there is none
	args     []string
	user     string
	password string
	tls      *tls.Config
	proc     *process // the process that was started last
	paused   bool
}

type process struct {
	*exec.Cmd
	done chan struct{} // closed when the process has exited
}

// Start starts a single server. The arguments args override those of this package, for example Start(t,
// "--maxmemory", "1mb"). With "--requirepass", the URL contains the password. Start takes about 50 ms.
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

// Addr returns the host:port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the URL of the server with user and password, for rueidis.ParseURL.
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

// Patient adds parameters to a URL, so that the client waits for up to 60 s on a busy machine. By default,
// the client closes the connection if a reply takes 500 ms, even if the call has a longer time limit.
func Patient(of string) string {
	sep := "?"
	if strings.Contains(of, sep) {
		sep = "&"
	}
	return of + sep + "dial_timeout=60s&write_timeout=60s"
}

// Kill kills the process like kill -9. Afterwards its port refuses connections.
func (s *Server) Kill() {
	s.tb.Helper()
	_ = s.proc.Process.Kill() // fails only if the process has exited
	<-s.proc.done
}

// Restart kills the process if it is running, starts it again on the same port, and waits until it has loaded
// its data. If a master restarts without data before a failover, its replicas also lose their data.
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

// Pause stops the process. Its connections stay open and the kernel accepts new ones, but no command gets a
// reply.
func (s *Server) Pause() { s.tb.Helper(); s.signal(stop); s.paused = true }

// Resume continues the process after Pause. The process then runs the commands that arrived in the meantime.
func (s *Server) Resume() { s.tb.Helper(); s.signal(resume); s.paused = false }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.proc.Process.Signal(sig); err != nil {
		s.tb.Fatalf("redis %s: %v", s.Addr(), err)
	}
}

// up reports whether the process is running and not paused.
func (s *Server) up() bool {
	select {
	case <-s.proc.done:
		return false
	default:
		return !s.paused
	}
}

// launch starts the process on a free port and registers its cleanup. It does not wait until the server is
// ready, so several servers can be launched before you wait for the first one.
func (s *Server) launch(tb testing.TB) {
	tb.Helper()
	s.tb, s.dir = tb, tb.TempDir() // before Cleanup: the directory must outlive the process
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
		s.port, s.bus = FreePort(tb), FreePort(tb)
		return s.exec()
	})
}

// exec starts the process and returns nil when the process replies. It returns an error if another process
// has taken the port since FreePort, or if the process was killed. If the process exits for another reason,
// exec fails the test, because the next process would also exit.
func (s *Server) exec(extra ...string) error {
	s.tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(serverEnv), binary))
	if err != nil {
		s.tb.Fatalf("%v: %s; %s names another server", err, install, serverEnv)
	}
	cmd := exec.Command(path, append(s.arguments(), extra...)...)
	cmd.Args[0] = "redis-server"
	out := new(bytes.Buffer) // errors about arguments; all other output goes to the log
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
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); <-tick.C {
		if s.answers() {
			return nil
		}
		if s.up() {
			continue
		}
		err := fmt.Errorf("%s ended: %v\n%s%s", s.Addr(), cmd.ProcessState, out, s.log())
		// The message is "Address already in use" or, with musl, "Address in use". If the process was killed,
		// another attempt can succeed.
		if cmd.ProcessState.Exited() && !strings.Contains(err.Error(), "in use") {
			s.tb.Fatalf("%s cannot run as Redis 7 or newer; %s names another server: %v", path, serverEnv, err)
		}
		return err
	}
	s.tb.Fatalf("waited %v for a reply of redis at %s", timeout, s.Addr())
	return nil
}

func (s *Server) arguments() []string {
	port := strconv.Itoa(s.port)
	args := []string{"--port", port}
	if s.tls != nil {
		args = []string{"--port", "0", "--tls-port", port}
	}
	args = append(args, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"))
	if s.config != "" { // a sentinel has no data
		return slices.Concat([]string{s.config}, args, s.args)
	}
	if s.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.bus))
	}
	return slices.Concat(args, []string{
		"--save", "", "--enable-debug-command", "local",
		"--repl-diskless-sync-delay", "0", // otherwise a replica gets no data for 5 s
		"--rdb-del-sync-files", "yes", // otherwise a replica loads the copy after Restart
	}, s.args)
}

// answers reports whether the process of s replies on its port. Another process that has taken the port does
// not count. A process that is still loading its data also replies.
func (s *Server) answers() bool {
	// The timeout is short, because another process may have the port and never reply. Then the process of s
	// has exited.
	info, err := s.tryFor(500*time.Millisecond, "INFO", "server")
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.proc.Process.Pid))
}

// ready waits until the server has loaded its data.
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

// ports counts the ports that FreePort has tried in this process.
var ports atomic.Int32 //nolint:gochecknoglobals // a port is for one test alone

// FreePort returns a port of 127.0.0.1 that is free for TCP and UDP. No other call in this process returns
// the same port. On Linux, no process of the same user gets that port from FreePort while this process is
// running. The port is below the range for outgoing connections, so no such connection takes it while its
// server is down.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 20000 + (100*os.Getpid()+int(ports.Add(1)))%12000
		if reserve(tb, port) && free(port) {
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}

func free(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = l.Close() }()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
