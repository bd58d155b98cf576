package redistest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
)

// Do runs a command on a new connection and returns the reply as text. A nil reply is "", and an array has
// one line per element. An error reply fails the test. Do does not follow the redirections of a cluster.
func (s *Server) Do(args ...string) string {
	s.tb.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.tb.Fatalf("%s at %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return reply
}

// Try is Do, but returns errors instead of failing the test. The error is either an error reply, such as
// "READONLY You can't write…", or a connection error. Try waits for at most 5 s.
func (s *Server) Try(args ...string) (string, error) { return s.tryFor(5*time.Second, args...) }

func (s *Server) tryFor(timeout time.Duration, args ...string) (string, error) {
	c, err := s.dial(timeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return exchange(c, args...)
}

// dial returns an authenticated connection. All operations on the connection together can take as long as
// timeout.
func (s *Server) dial(timeout time.Duration) (*proto.Client, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(timeout))
	if s.tls != nil {
		conn = tls.Client(conn, s.tls)
	}
	c := proto.NewClient(conn)
	if err == nil && s.password != "" {
		_, err = exchange(c, "AUTH", cmp.Or(s.user, "default"), s.password)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func exchange(c *proto.Client, args ...string) (string, error) {
	raw, err := c.Do(args...)
	if err != nil {
		return "", err
	}
	reply, err := proto.Parse(raw)
	if err != nil {
		return "", err
	}
	if err, ok := reply.(error); ok {
		return "", err
	}
	return text(reply), nil
}

func text(reply any) string {
	if reply == "$-1\r\n" { // proto's form of nil
		return ""
	}
	elements, ok := reply.([]any)
	if !ok {
		return fmt.Sprint(reply)
	}
	lines := make([]string, len(elements))
	for i, e := range elements {
		lines[i] = text(e)
	}
	return strings.Join(lines, "\n")
}

// Commands returns how often each command ran since ResetStats or since the process started. The names are in
// lower case, such as "get", "evalsha" and "client|tracking". The numbers include calls from scripts, and
// commands from Do and from this package.
func (s *Server) Commands() map[string]int64 {
	s.tb.Helper()
	calls := map[string]int64{}
	for line := range strings.Lines(s.Do("INFO", "commandstats")) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(stats[:strings.IndexByte(stats, ',')], 10, 64)
		if err != nil {
			s.tb.Fatalf("INFO commandstats: %q", line)
		}
		calls[name] = n
	}
	return calls
}

// ResetStats sets the counters of Commands to zero.
func (s *Server) ResetStats() { s.tb.Helper(); s.Do("CONFIG", "RESETSTAT") }

// WaitReplicas waits until n replicas have all current data of the server, so that a failover to one of them
// loses no data. Replicas report their progress once a second.
func (s *Server) WaitReplicas(n int) {
	s.tb.Helper()
	want := offset(masterOffset.FindStringSubmatch(s.Do("INFO", "replication")))
	Eventually(s.tb, "replicas to catch up", func() error { return s.caughtUp(n, want) })
}

// WaitReplicas does not use the command WAIT, because it only covers the writes of its own connection. If
// there are none, Valkey replies immediately.
var (
	masterOffset  = regexp.MustCompile(`(?m)^master_repl_offset:(\d+)`)
	replicaOffset = regexp.MustCompile(`(?m)^slave\d+:.*,offset=(\d+)`)
)

func offset(match []string) int64 {
	if match == nil {
		return -1
	}
	n, _ := strconv.ParseInt(match[1], 10, 64)
	return n
}

// caughtUp returns nil if at least n replicas have acknowledged the offset want.
func (s *Server) caughtUp(n int, want int64) error {
	info, err := s.Try("INFO", "replication")
	if err != nil {
		return err
	}
	count := 0
	for _, replica := range replicaOffset.FindAllStringSubmatch(info, -1) {
		if offset(replica) >= want {
			count++
		}
	}
	if want < 0 || count < n {
		return fmt.Errorf("%d replicas are up to date, want %d at %d:\n%s", count, n, want, info)
	}
	return nil
}

// ReadOnly makes the server a replica of a master that does not exist. The server continues to serve reads,
// but rejects writes with READONLY. ReadOnly(false) makes the server a master again, with its data.
func (s *Server) ReadOnly(on bool) {
	s.tb.Helper()
	if on {
		s.Do("REPLICAOF", "127.0.0.1", "1")
	} else {
		s.Do("REPLICAOF", "NO", "ONE")
	}
}

// Full makes the server reject all writes that need memory. The error reply is OOM.
func (s *Server) Full(on bool) {
	s.tb.Helper()
	limit := "0"
	if on {
		limit = "1"
	}
	s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", limit)
}

// RestartLoading is Restart, but returns while the server is still loading its data. The server rejects
// nearly all commands with LOADING until finish is called, and then has its previous data. RestartLoading
// does not work for nodes of a cluster.
func (s *Server) RestartLoading() (finish func()) {
	s.tb.Helper()
	// Add values that take 20 ms each to load, so that loading would take 40 s. While loading, the server
	// processes commands each time it has loaded a certain number of bytes. Each value is larger than that
	// number.
	const ballast = "for i = 1, 2000 do redis.call('SET', 'redistest:ballast:' .. i, string.rep('x', 2048)) end"
	const drop = "for i = 1, 2000 do redis.call('DEL', 'redistest:ballast:' .. i) end"
	s.Do("EVAL", ballast, "0")
	s.Do("CONFIG", "SET", "rdbcompression", "no")
	s.Do("SAVE")
	// Turn off the append-only file, because the server would otherwise load it instead of the dump.
	s.restart("--appendonly", "no",
		"--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	Eventually(s.tb, "LOADING", func() error {
		if _, err := s.Try("GET", "x"); err == nil || !strings.HasPrefix(err.Error(), "LOADING") {
			return errors.Join(errors.New("no LOADING"), err)
		}
		return nil
	})
	return func() {
		s.tb.Helper()
		s.Do("CONFIG", "SET", "key-load-delay", "0")
		s.ready()
		s.Do("EVAL", drop, "0")
		if err := os.Remove(filepath.Join(s.dir, "dump.rdb")); err != nil {
			s.tb.Fatal(err) // the next Restart would load it
		}
	}
}
