package rueidisconn

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/internal/redistest"
)

// standIn starts a server that sends greet on each new connection, and answers each command with the result of reply.
// If reply returns "", the server closes the connection.
func standIn(t *testing.T, greet string, reply func(command []string) string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, greet, reply)
		}
	}()
	return l.Addr().String()
}

func serve(c net.Conn, greet string, reply func(command []string) string) {
	defer func() { _ = c.Close() }()
	if _, _ = io.WriteString(c, greet); reply == nil {
		return
	}
	in := bufio.NewReader(c)
	for {
		var words []string
		head, err := in.ReadString('\n')
		if err != nil {
			return
		}
		n := 0
		for _, digit := range strings.TrimSpace(head[1:]) {
			n = 10*n + int(digit-'0')
		}
		for range n {
			if _, err = in.ReadString('\n'); err != nil {
				return
			}
			word, err := in.ReadString('\n') // no word in these tests contains a line end
			if err != nil {
				return
			}
			words = append(words, strings.TrimSpace(word))
		}
		if len(words) == 0 {
			return // not a command, but a TLS handshake
		}
		words[0] = strings.ToUpper(words[0])
		answer := reply(words)
		if _, _ = io.WriteString(c, answer); answer == "" {
			return
		}
	}
}

// knows answers the commands in replies, and passes all other commands to otherwise.
func knows(replies map[string]string, otherwise func([]string) string) func([]string) string {
	return func(command []string) string {
		if answer, ok := replies[command[0]]; ok {
			return answer
		}
		return otherwise(command)
	}
}

func unknownCommand(command []string) string {
	return "-ERR unknown command '" + command[0] + "', with args beginning with: \r\n"
}

// hello is the answer of a Redis server to HELLO 3.
const hello = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n"

// If a store cannot connect, its error says what runs at the address, and what to do about it. The client's own error
// is often only EOF.
func TestDiagnosis(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	secured, plain := redistest.StartTLS(t), redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "correct-horse")
	sentinel := redistest.StartSentinel(t)
	web, webTLS := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	t.Cleanup(webTLS.Close)
	paused := redistest.Start(t)
	paused.Pause()
	t.Cleanup(paused.Resume)
	// Redis 7.0.15 sends either of these messages to a new connection and closes the connection (networking.c,
	// acceptCommonHandler).
	protected := standIn(t, "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set\r\n", nil)
	full := standIn(t, "-ERR max number of clients reached\r\n", nil)
	page := standIn(t, "", func([]string) string { return "<!DOCTYPE HTML>\n" })
	loading := standIn(t, "", func([]string) string { return "-LOADING Redis is loading the dataset in memory\r\n" })
	closing := standIn(t, "", func([]string) string { return "" })
	// According to the table in its notes/redis.md, twemproxy supports EXISTS, EVAL and EVALSHA, but not PING, HELLO,
	// ROLE and SUBSCRIBE. If a client sends an unsupported command, twemproxy closes the connection.
	twemproxy := standIn(t, "", knows(map[string]string{"EXISTS": ":0\r\n", "EVAL": ":1\r\n"}, func([]string) string { return "" }))
	withPing := standIn(t, "", knows(map[string]string{"PING": "+PONG\r\n"}, func([]string) string { return "" }))
	// According to its architecture overview, Envoy supports ROLE, EVAL, EVALSHA and PUBLISH, but not HELLO and
	// SUBSCRIBE. Envoy answers an unsupported command with an error.
	envoy := standIn(t, "", knows(map[string]string{"PING": "+PONG\r\n", "EVAL": ":1\r\n", "PUBLISH": ":0\r\n"}, unknownCommand))
	noScripts := standIn(t, "", knows(map[string]string{"PING": "+PONG\r\n", "HELLO": hello, "CLIENT": "+OK\r\n"}, unknownCommand))
	noPublish := standIn(t, "", knows(map[string]string{"PING": "+PONG\r\n", "HELLO": hello, "EVAL": ":1\r\n"}, unknownCommand))
	noSubscribe := standIn(t, "", knows(map[string]string{"PING": "+PONG\r\n", "HELLO": hello, "EVAL": ":1\r\n", "PUBLISH": ":0\r\n"}, unknownCommand))
	behindProxy := standIn(t, "", knows(map[string]string{
		"PING": "+PONG\r\n", "HELLO": hello, "CLIENT": "+OK\r\n",
		"EVALSHA": "-MOVED 1234 10.0.0.7:6379\r\n", "EVAL": "-MOVED 1234 10.0.0.7:6379\r\n",
		"CLUSTER": "-ERR This instance has cluster support disabled\r\n",
	}, unknownCommand))

	for name, tt := range map[string]struct {
		opt  Options
		want string // "" if the diagnosis finds nothing
	}{
		"TLS to a plain port":    {Options{URL: "rediss://" + plain.Addr()}, "use redis://"},
		"plaintext to TLS":       {Options{URL: "redis://" + secured.Addr()}, "use rediss://"},
		"unknown authority":      {Options{URL: "rediss://" + secured.Addr()}, ""},
		"HTTP":                   {Options{URL: "redis://" + web.Listener.Addr().String()}, "HTTP"},
		"HTTP without a head":    {Options{URL: "redis://" + page}, "HTTP"},
		"HTTPS":                  {Options{URL: "rediss://" + webTLS.Listener.Addr().String(), TLS: webTLS.Client().Transport.(*http.Transport).TLSClientConfig}, "HTTP"},
		"TLS to HTTP":            {Options{URL: "rediss://" + web.Listener.Addr().String()}, "HTTP"},
		"no password":            {Options{URL: "redis://" + locked.Addr()}, "needs a password"},
		"wrong password":         {Options{URL: "redis://:wrong@" + locked.Addr()}, ""},
		"a sentinel as a server": {Options{URL: "redis://" + strings.TrimPrefix(strings.Split(sentinel.URL(), "?")[0], "redis://")}, "master_set"},
		"a server as a sentinel": {Options{URL: "redis://" + plain.Addr() + "?master_set=main"}, "out of the URL"},
		"hangs":                  {Options{URL: paused.URL()}, "does not answer"},
		"hangs, with TLS":        {Options{URL: "rediss://" + paused.Addr()}, "does not answer"},
		"protected mode":         {Options{URL: "redis://" + protected}, "protected mode"},
		"no client left":         {Options{URL: "redis://" + full}, "maxclients"},
		"loading":                {Options{URL: "redis://" + loading}, "loading"},
		"closes":                 {Options{URL: "redis://" + closing}, "closes connections"},
		"twemproxy":              {Options{URL: "redis://" + twemproxy}, "without HELLO"},
		"another proxy":          {Options{URL: "redis://" + withPing}, "without HELLO"},
		"Envoy":                  {Options{URL: "redis://" + envoy}, "without HELLO"},
		"no scripts":             {Options{URL: "redis://" + noScripts}, "without EVAL"},
		"cluster behind a proxy": {Options{URL: "redis://" + behindProxy}, "node of a Redis Cluster"},
		"nothing listens":        {Options{URL: "redis://127.0.0.1:1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, tt.opt)
			err := s.Do(t.Context(), redisconn.Command{Head: []string{"PING"}})[0].Err
			if err == nil {
				t.Fatal("the store works")
			}
			_, found, _ := strings.Cut(err.Error(), "; found at ")
			t.Log(err)
			if (found == "") != (tt.want == "") || !strings.Contains(found, tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
	for name, tt := range map[string]struct{ addr, want string }{
		"no PUBLISH":   {noPublish, "without PUBLISH"},
		"no SUBSCRIBE": {noSubscribe, "without SUBSCRIBE"},
		"in order":     {plain.Addr(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := diagnose(t.Context(), io.EOF, target{network: "tcp", addr: tt.addr, key: "roost:probe"})
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q; want %q", got, tt.want)
			}
		})
	}
}

// If the server is a replica, the diagnosis says so.
func TestDiagnoseReplica(t *testing.T) {
	server := redistest.Start(t)
	server.ReadOnly(true)
	if got := diagnose(t.Context(), io.EOF, target{network: "tcp", addr: server.Addr(), key: "roost:probe"}); !strings.Contains(got, "replica") {
		t.Errorf("%q", got)
	}
}

// At first something other than Redis runs at the address. Once Redis runs there, the connection works.
func TestDiagnosisEnds(t *testing.T) {
	server := redistest.Start(t)
	other := standIn(t, "", func([]string) string { return "" })
	link := redistest.Proxy(t, other)
	s := open(t, Options{URL: link.URL(server)})
	if err := ping(s); err == nil || !strings.Contains(err.Error(), "found at") {
		t.Errorf("error %v", err)
	}
	link.Retarget(server.Addr())
	redistest.Eventually(t, "an answer", func() error { return ping(s) })
}

// A diagnosis never sends a password, and ends when its context ends.
func TestDiagnosisIsDiscreet(t *testing.T) {
	secret := make(chan string, 1)
	silent := standIn(t, "", func(command []string) string {
		if line := strings.Join(command, " "); strings.Contains(line, "correct-horse") {
			select {
			case secret <- line:
			default:
			}
		}
		return "" // like a proxy that supports no command
	})
	at := (Options{URL: "redis://:correct-horse@" + silent}).targets()
	if got := diagnose(t.Context(), io.EOF, at...); !strings.Contains(got, "closes connections") {
		t.Errorf("%q", got)
	}
	select {
	case line := <-secret:
		t.Errorf("it sent %q", line)
	default:
	}

	paused := redistest.Start(t)
	paused.Pause()
	defer paused.Resume()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	diagnose(ctx, io.EOF, target{network: "tcp", addr: paused.Addr()})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
