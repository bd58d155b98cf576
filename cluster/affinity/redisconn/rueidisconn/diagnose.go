package rueidisconn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// diagnoseTime is the maximum duration of a diagnosis.
const diagnoseTime = time.Second

// probe is a key that a script declares but never uses, and also the name of a channel. Every Redis user with
// the permissions that roost needs can use this key and this channel.
const probe = "roost:probe"

// examine returns the link if it works. Otherwise, examine returns a link whose error also describes what is
// at the address of Redis.
func (c *Conn) examine(life context.Context, l *link) *link {
	if l.err == nil && l.client.Mode() != rueidis.ClientModeCluster {
		if err := c.unfit(life, l); err != nil {
			l.client.Close()
			l = &link{err: err}
		}
	}
	if l.err != nil && life.Err() == nil {
		if finding := diagnose(life, l.err, c.opt.targets()...); finding != "" {
			l = &link{err: fmt.Errorf("%w; %s", l.err, finding)}
		}
	}
	return l
}

// unfit returns why a single server to which the client has connected does not support scripts or HELLO. The
// server may be a sentinel, a proxy, or a node of a cluster. unfit ignores temporary errors such as LOADING.
func (c *Conn) unfit(life context.Context, l *link) error {
	for _, reply := range l.do(life, []redisconn.Command{
		{Head: []string{"EVAL", "return 1", "1"}, Keys: []string{probe}},
		{Head: []string{"HELLO"}}, // the client works without HELLO, but a server without HELLO also lacks SUBSCRIBE
	}) {
		answer, ok := errors.AsType[redisconn.Error](reply.Err)
		if reply.Err != nil && (!ok || unknown("-"+string(answer)) || moved("-"+string(answer))) {
			return fmt.Errorf("ask what %s can do: %w", c.where, reply.Err)
		}
	}
	return nil
}

// targets returns the addresses to which a client with these options connects first.
func (o Options) targets() (all []target) {
	opt, err := o.client(context.Background())
	if err != nil {
		return nil
	}
	at := target{network: "tcp", tls: opt.TLSConfig, sentinel: opt.Sentinel.MasterSet != "", key: probe}
	at.login = o.Credentials != nil || opt.Password != ""
	if strings.HasPrefix(o.URL, "unix:") {
		at.network = "unix"
	}
	for _, at.addr = range opt.InitAddress {
		all = append(all, at)
	}
	return all
}

// target is an address to which a client failed to connect.
type target struct {
	network, addr string      // of net.Dial
	tls           *tls.Config // nil: without TLS
	sentinel      bool        // the client expects a sentinel
	login         bool        // the client has a password
	key           string      // a key that a script and PUBLISH may name
}

// diagnose looks for the first target that explains err. It returns one sentence that describes what is at
// that target and what to do. If diagnose finds nothing beyond what err says, it returns "". diagnose opens
// its own connections for up to a second. diagnose writes no data and never sends a password. However, it
// publishes an empty message to a channel without subscribers.
func diagnose(ctx context.Context, err error, targets ...target) string {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTime)
	defer cancel()
	for _, at := range targets {
		finding := saidByServer(err.Error(), at.login)
		if finding == "" {
			finding = at.look(ctx)
		}
		if finding != "" {
			return fmt.Sprintf("found at %s: %s", at.addr, finding)
		}
	}
	return ""
}

// saidByServer explains the reply with which a server refused a connection.
func saidByServer(reply string, login bool) string {
	for _, known := range []struct{ part, finding string }{
		{"DENIED Redis is running in protected mode", "Redis in protected mode, which only answers its own host: " +
			"give Redis a password or an ACL user, and the agent the same in its URL"},
		{"max number of clients", "Redis has no connection left: raise its maxclients, or see who holds them (CLIENT LIST)"},
		{"LOADING ", "Redis is loading its data: wait; the agent tries again"},
	} {
		if strings.Contains(reply, known.part) {
			return known.finding
		}
	}
	if strings.Contains(reply, "NOAUTH") && !login {
		return "Redis needs a password: put user and password into the URL"
	}
	return ""
}

// look connects to the target and examines its replies.
func (at target) look(ctx context.Context) string {
	first := ctx
	if at.tls != nil { // Redis without TLS does not answer a TLS handshake, because it waits for the rest of a command
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(ctx, diagnoseTime/2)
		defer cancel()
	}
	c, err := at.dial(first, at.tls)
	if err != nil {
		return at.lookAtTLS(ctx, err)
	}
	defer c.close()
	reply, err := c.ask("PING")
	switch {
	case isOp(err, "remote error"):
		return "" // the server refuses our certificate, and the error says so
	case at.tls != nil && first.Err() != nil:
		return "" // the server may be far away
	case ctx.Err() != nil:
		return silent
	case isHTTP(reply):
		return "an HTTP server: use the port of Redis"
	case isReply(reply):
		return at.lookAtCommands(ctx, reply)
	default:
		return at.lookAtSilence(ctx, err)
	}
}

// lookAtSilence explains why a server does not reply to PING. If err is not nil, the server closed the
// connection.
func (at target) lookAtSilence(ctx context.Context, err error) string {
	switch {
	case at.try(ctx, "EXISTS", at.key).replied():
		return at.lookAtCommands(ctx, "") // probably a proxy that does not support PING
	case at.tls == nil && at.speaksTLS(ctx):
		return "a port with TLS: use rediss:// in place of redis://"
	case err == nil:
		return "a server that does not speak the protocol of Redis: use the port of Redis"
	default:
		return "something that closes connections without an answer: a proxy or balancer that does not reach Redis, or the port of another program"
	}
}

const silent = "something that accepts connections and does not answer: see whether the process hangs, and whether the port is Redis's"

// isHTTP reports whether a line is the start of an HTTP server's response. Some HTTP servers reply to a
// malformed request with only a page.
func isHTTP(line string) bool {
	return strings.HasPrefix(line, "HTTP/") || strings.HasPrefix(line, "<")
}

// isReply reports whether a line starts like a Redis reply.
func isReply(line string) bool { return line != "" && strings.ContainsRune("+-:$*_%", rune(line[0])) }

// lookAtTLS explains a failed connection. If the TLS handshake failed, lookAtTLS checks for a server without
// TLS.
func (at target) lookAtTLS(ctx context.Context, err error) string {
	if at.tls == nil || isOp(err, "dial") || isOp(err, "remote error") || errors.As(err, new(*tls.CertificateVerificationError)) {
		return "" // the error says why it fails
	}
	c, err := at.dial(ctx, nil)
	if err != nil {
		return ""
	}
	defer c.close()
	switch reply, _ := c.ask("PING"); {
	case isHTTP(reply):
		return "an HTTP server: use the port of Redis"
	case isReply(reply):
		return "a port without TLS: use redis:// in place of rediss://, or the TLS port of Redis"
	case ctx.Err() != nil:
		return silent
	default:
		return ""
	}
}

// speaksTLS reports whether the server completes or refuses a TLS handshake. speaksTLS sends no data over the
// connection.
func (at target) speaksTLS(ctx context.Context) bool {
	host, _, _ := net.SplitHostPort(at.addr)
	//nolint:gosec // nothing is sent: any certificate shows that the port speaks TLS
	c, err := at.dial(ctx, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err == nil {
		c.close()
	}
	return err == nil || isOp(err, "remote error")
}

// isOp reports whether err comes from the given operation. crypto/tls reports an alert from the server as the
// operation "remote error".
func isOp(err error, op string) bool {
	var e *net.OpError
	return errors.As(err, &e) && e.Op == op
}

// lookAtCommands explains a server that uses the Redis protocol and has replied to PING.
func (at target) lookAtCommands(ctx context.Context, pong string) string {
	if finding := saidByServer(pong, at.login); finding != "" {
		return finding
	}
	role := at.try(ctx, "ROLE")
	switch {
	case at.sentinel && role.isRole("sentinel"):
		return ""
	case at.sentinel && (role.isRole("master") || role.isRole("slave")):
		return "a Redis server, where a sentinel is expected: use a sentinel's port (usually 26379), or take master_set out of the URL"
	case role.isRole("sentinel"):
		return "a sentinel: add ?master_set=NAME to the URL, with the name of the master that the sentinel watches"
	}
	if finding := at.lookAtNeeds(ctx); finding != "" || !role.isRole("slave") {
		return finding
	}
	return "a replica, which takes no writes: use the address of its master, or sentinels"
}

// lookAtNeeds sends one command of each kind that the store needs.
func (at target) lookAtNeeds(ctx context.Context) string {
	for _, need := range []struct {
		command []string
		without string
	}{
		{[]string{"HELLO", "3"}, "HELLO"},
		{[]string{"EVAL", "return 1", "1", at.key}, "EVAL and EVALSHA"},
		{[]string{"PUBLISH", at.key, ""}, "PUBLISH"},
		{[]string{"SUBSCRIBE", at.key}, "SUBSCRIBE"},
	} {
		got := at.try(ctx, need.command...)
		switch {
		case got == nil, ctx.Err() != nil:
			return ""
		case moved(got[0]):
			return "a node of a Redis Cluster, whose other nodes the agent does not learn: " +
				"let it send CLUSTER SLOTS and CLUSTER SHARDS, and reach the nodes at the addresses in their answers"
		case unknown(got[0]):
			return fmt.Sprintf("a proxy or a server without %s, which roost needs: connect to Redis itself", need.without)
		}
	}
	return ""
}

// answer is the reply to a command, as its first lines without line endings.
type answer []string

// try sends a command over a new connection, because some proxies close the connection when they receive an
// unknown command. If the connection was closed, the answer is empty. If no connection is possible because
// the server has just stopped, the answer is nil.
func (at target) try(ctx context.Context, command ...string) answer {
	c, err := at.dial(ctx, at.tls)
	if err != nil {
		return nil
	}
	defer c.close()
	line, err := c.ask(command...)
	if err != nil {
		return answer{""}
	}
	a := answer{line}
	if strings.HasPrefix(line, "*") { // in ROLE, the first element is a string
		for range 2 {
			line, _ = c.line()
			a = append(a, line)
		}
	}
	return a
}

func (a answer) replied() bool { return len(a) > 0 && isReply(a[0]) }

// isRole reports whether a reply to ROLE starts with the given role.
func (a answer) isRole(role string) bool { return len(a) == 3 && a[2] == role }

func moved(line string) bool { return strings.HasPrefix(line, "-MOVED ") }

// unknown reports whether a server does not support a command, according to its error reply or because it
// closed the connection.
func unknown(line string) bool {
	lower := strings.ToLower(line)
	return line == "" || strings.HasPrefix(line, "-") && (strings.Contains(lower, "unknown command") ||
		strings.Contains(lower, "unsupported") || strings.Contains(lower, "not supported") || strings.Contains(lower, "invalid request"))
}

// conversation is a connection that sends commands and reads the replies line by line.
type conversation struct {
	net.Conn
	in   *bufio.Reader
	stop func() bool
}

// dial connects to the target and performs a TLS handshake if security is not nil. The connection is closed
// when ctx ends.
func (at target) dial(ctx context.Context, security *tls.Config) (*conversation, error) {
	conn, err := new(net.Dialer).DialContext(ctx, at.network, at.addr)
	if err != nil {
		return nil, err
	}
	if security != nil {
		secured := tls.Client(conn, security)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = secured
	}
	const longest = 1 << 10 // bytes of a line
	return &conversation{conn, bufio.NewReaderSize(conn, longest), context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
}

func (c *conversation) close() {
	c.stop()
	_ = c.Close()
}

// ask sends a command and returns the first line of the reply.
func (c *conversation) ask(command ...string) (string, error) {
	var out strings.Builder
	out.WriteString("*" + strconv.Itoa(len(command)) + "\r\n")
	for _, word := range command {
		out.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
	// A server may refuse a connection before it reads the command. Read its reply even if the write fails.
	_, _ = io.WriteString(c, out.String())
	return c.line()
}

// line returns the next line, or the beginning of a line that is too long.
func (c *conversation) line() (string, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > 0 {
		err = nil
	}
	return strings.TrimRight(string(line), "\r\n"), err
}
