//go:build linux

package docstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/redistest"
)

// patience bounds every wait: nothing here proves that something is quick.
const patience = time.Minute

// substitutions are all that is changed in what the pages say, but for addresses: each
// gets a free port of loopback, and 6379 is that of a real Redis.
var substitutions = []struct {
	page *regexp.Regexp
	test string
}{
	// go run itself exits with 1 after Ctrl-C, whatever its program does.
	{regexp.MustCompile(`\bgo run \./examples/(\w+)`), `go build -C "$$ROOT" -o "$$PWD/" ./examples/$1 && ./$1`},
	{regexp.MustCompile(`\bgo list `), `go list -C "$$ROOT" `},
	{regexp.MustCompile(`\bcurl `), `curl -sS `}, // no progress is shown on a terminal
	{regexp.MustCompile(`\bnode (?:examples/sidecar/)?server`), `node "$$ROOT/examples/sidecar/server`},
	{regexp.MustCompile(`server\.mjs`), `server.mjs"`},
	{regexp.MustCompile(`\bmake `), `make -n -C "$$ROOT" `},                                          // it says what it would do
	{regexp.MustCompile(`\broost agent`), `roost agent --bind 127.0.0.1:7946 --http 127.0.0.1:8401`}, // a later flag counts
	{regexp.MustCompile(`\broost demo`), `roost demo --http 127.0.0.1:8400`},
	{regexp.MustCompile(`^roost top.*`), `TERM=xterm script -qec 'stty rows 40 cols 120; $0' /dev/null`}, // it needs a terminal
	{regexp.MustCompile(`\bjq `), `jq --unbuffered `},                                                    // as on a terminal
	{regexp.MustCompile(`\bredis-cli config`), `redis-cli -u URL config`},
	{regexp.MustCompile(`\bURL\b`), `redis://127.0.0.1:6379`},
	{regexp.MustCompile(` /etc/`), ` ./`},
}

var address = regexp.MustCompile(`\b(?:127\.0\.0\.1|0\.0\.0\.0|10\.0\.0\.\d+):(\d+)\b`)

// A step is a command, and what comes of it.
type step struct {
	line  string // as its page has it; "" is a step of the test's own
	why   string // it is not run
	given string // what the reader has done before, in bash
	also  string // prints something to look at afterwards
	want  string // a regular expression: of what is printed; "" if the page shows it
	shows string // what the page shows
	code  int    // the exit code; -1 is an end by a signal
	again bool   // the reader asks again until the answer is this
	stays bool   // it goes on in a terminal of its own, until Ctrl-C
}

// A sitting is what one reader does in one directory.
type sitting struct {
	t         *testing.T
	dir       string
	env       []string
	exports   string
	redis     *redistest.Server
	ports     map[string]string // by the addresses of the page
	terminals []*terminal
}

// newSitting begins one. bin is where the binary is.
func newSitting(t *testing.T, bin string) *sitting {
	t.Helper()
	s := &sitting{t: t, dir: t.TempDir(), ports: make(map[string]string)}
	s.env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ROOST_") || strings.HasPrefix(v, "MAKE")
	})
	tree, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(
		s.env, "PATH="+bin+":"+os.Getenv("PATH"), "ROOT="+tree+"/"+root,
		"ROOST_ADDR="+s.literal("127.0.0.1:8401"),
	)
	return s
}

// sit goes through the steps.
func (s *sitting) sit(steps []step) {
	t := s.t
	t.Helper()
	for _, st := range steps {
		if st.shows != "" {
			st.want = s.pattern(st.shows)
		}
		switch {
		case st.why != "":
		case strings.HasPrefix(st.line, "# Ctrl-C"):
			s.end(st.line)
		case st.stays:
			s.open(st)
		case st.again:
			redistest.Eventually(t, st.given+st.line, func() error { return s.try(st) })
		default:
			if err := s.try(st); err != nil {
				t.Errorf("%s: %v", st.line, err)
			}
		}
	}
	for _, term := range slices.Backward(s.terminals) {
		term.ctrlC(t)
	}
}

var (
	aside  = regexp.MustCompile(` \([^)]+\)$`)
	number = regexp.MustCompile(`\d{10,}`)
	space  = regexp.MustCompile(`\s+`)
)

// pattern is the regular expression of what a page shows, where … is anything, long
// numbers are others each time, and parentheses at the end are to the reader.
func (s *sitting) pattern(shown string) string {
	shown = regexp.QuoteMeta(s.addresses(aside.ReplaceAllString(strings.TrimSpace(shown), "")))
	shown = number.ReplaceAllString(shown, `\d+`)
	return "(?s)" + space.ReplaceAllString(strings.ReplaceAll(shown, "…", ".*"), `\s*`)
}

// try runs a command to its end.
func (s *sitting) try(st step) error {
	out, code := s.bash(st.given + "\n" + st.line)
	if st.also != "" {
		shown, _ := s.bash(st.also)
		out += shown
	}
	for _, term := range s.terminals {
		if strings.HasSuffix(term.line, " &") { // it prints to the same terminal
			out += term.out.String()
		}
	}
	if code != st.code {
		return fmt.Errorf("exits with %d, want %d:\n%s", code, st.code, out)
	}
	if !regexp.MustCompile(st.want).MatchString(out) {
		return fmt.Errorf("prints\n%s\nwant a match of %s", out, st.want)
	}
	return nil
}

func (s *sitting) bash(script string) (out string, code int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, script)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", script, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func (s *sitting) command(ctx context.Context, script string) *exec.Cmd {
	script = s.literal(script)
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "export ") {
			s.exports += strings.TrimSpace(line) + "\n"
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", s.exports+script)
	cmd.Dir, cmd.Env = s.dir, s.env
	// A group of its own gets Ctrl-C as from a terminal. What the test leaves behind ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// literal is what is run in place of what the page says.
func (s *sitting) literal(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		for _, sub := range substitutions {
			lines[i] = sub.page.ReplaceAllString(lines[i], sub.test)
		}
	}
	return s.addresses(strings.Join(lines, "\n"))
}

func (s *sitting) addresses(text string) string {
	return address.ReplaceAllStringFunc(text, func(addr string) string {
		if strings.HasSuffix(addr, ":6379") {
			if s.redis == nil {
				s.redis = redistest.Start(s.t)
			}
			return s.redis.Addr()
		}
		if s.ports[addr] == "" {
			s.ports[addr] = freeAddr(s.t)
		}
		return s.ports[addr]
	})
}

var (
	firstPort = 20000 + rand.Int32N(10000)
	ports     atomic.Int32 // that were looked at
)

// freeAddr is below the range from which the system gives ports to outgoing
// connections, and no other sitting gets it.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", firstPort+ports.Add(1))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// terminal is where something goes on.
type terminal struct {
	step
	cmd  *exec.Cmd
	out  agentproc.Log
	done chan struct{} // closed when it has ended
}

// open starts a command and waits until it has printed what is wanted.
func (s *sitting) open(st step) {
	term := &terminal{step: st, done: make(chan struct{})}
	term.cmd = s.command(s.t.Context(), st.given+"\n"+strings.TrimSuffix(st.line, " &"))
	term.cmd.Stdout, term.cmd.Stderr = &term.out, &term.out
	if err := term.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = term.cmd.Wait()
		close(term.done)
	}()
	s.t.Cleanup(func() {
		_ = term.cmd.Cancel()
		<-term.done
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", st.line, term.out.String())
		}
	})
	s.terminals = append(s.terminals, term)
	want := regexp.MustCompile(st.want)
	redistest.Eventually(s.t, fmt.Sprintf("%s to print %s", st.line, want), func() error {
		if want.MatchString(term.out.String()) {
			return nil
		}
		select {
		case <-term.done:
			s.t.Fatalf("%s%s ends with %v", st.given, st.line, term.cmd.ProcessState)
		default:
		}
		return errors.New("it has not")
	})
}

// end presses Ctrl-C in "the terminal of b".
func (s *sitting) end(line string) {
	id := "-id " + line[strings.LastIndexByte(line, ' ')+1:] + " "
	i := slices.IndexFunc(s.terminals, func(term *terminal) bool { return strings.Contains(term.line, id) })
	if i < 0 {
		s.t.Fatalf("%s: nothing runs with %s", line, id)
	}
	s.terminals[i].ctrlC(s.t)
	s.terminals = slices.Delete(s.terminals, i, i+1)
}

func (term *terminal) ctrlC(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-term.cmd.Process.Pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	select {
	case <-term.done:
	case <-time.After(patience):
		t.Fatalf("%s goes on after Ctrl-C", term.line)
	}
	if code := term.cmd.ProcessState.ExitCode(); code != term.code {
		t.Errorf("%s%s: %v after Ctrl-C, want %d", term.given, term.line, term.cmd.ProcessState, term.code)
	}
}
