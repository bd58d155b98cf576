package browser

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// terminal is a pseudo-terminal, and everything that a command has written to it.
type terminal struct {
	tty, master *os.File
	screen      *agentproc.Log
}

func openTerminal(t *testing.T, columns, lines uint16) terminal {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds the binary")
	}
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	p := terminal{tty, master, new(agentproc.Log)}
	p.resize(t, columns, lines)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p.screen, master)
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		<-read // it ends when no process has the other end open
		_ = master.Close()
	})
	return p
}

func (p terminal) resize(t *testing.T, columns, lines uint16) {
	t.Helper()
	if err := pty.Setsize(p.master, &pty.Winsize{Cols: columns, Rows: lines}); err != nil {
		t.Fatal(err)
	}
}

func (p terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// shows waits until the terminal has shown the text.
func (p terminal) shows(t *testing.T, text string) {
	t.Helper()
	wait(t, text, func() bool { return strings.Contains(p.screen.String(), text) }, p.screen)
}

// wait polls until a condition is true, and prints the details if it never is.
func wait(t *testing.T, what string, condition func() bool, details ...any) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %q; %q", what, details)
		}
	}
}

// binary is the program that users get.
var binary = builds("../../..", "./cmd/roost")

// builds returns a function that builds a program once for all tests.
func builds(module, pkg string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := agenttest.Folder()
		if err != nil {
			return "", err
		}
		atEnd = append(atEnd, func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "program")
		out, err := exec.Command("go", "run", "-C", module, "-race=false", "-exec", "cp", pkg, path).CombinedOutput() // as in agenttest
		if err != nil {
			return "", fmt.Errorf("go run: %w\n%s", err, out)
		}
		return path, nil
	})
}

// command is a process of the binary that calls the fake agent.
type command struct {
	*exec.Cmd
	errors agentproc.Log
}

func (f *fake) command(t *testing.T, in io.Reader, out io.Writer, args ...string) *command {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	c := &command{Cmd: exec.CommandContext(t.Context(), path, args...)}
	c.Env = []string{"ROOST_ADDR=" + f.Listener.Addr().String(), "TERM=xterm"}
	c.Stdin, c.Stdout, c.Stderr = in, out, &c.errors
	return c
}

func (c *command) start(t *testing.T) *command {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// exits waits until the process ends.
func (c *command) exits(t *testing.T, code int) {
	t.Helper()
	timer := time.AfterFunc(timeout, func() { _ = c.Process.Kill() })
	_ = c.Wait()
	if got := c.ProcessState.ExitCode(); got != code || !timer.Stop() {
		t.Fatalf("%v exits with %d, want %d: %s", c.Args[1:], got, code, &c.errors)
	}
}

// plain removes escape sequences.
func plain(s string) string {
	var b strings.Builder
	escape := false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = strings.ContainsRune("[?;0123456789", r)
		case r != '\r':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// On a terminal, a table that is watched is redrawn in place, and fits.
func TestWatchRedraws(t *testing.T) {
	f := newFake(t, 3, 64)
	p := openTerminal(t, 40, 4)
	c := f.command(t, nil, p.tty, "members", "-w", "--every", "2ms").start(t)
	p.shows(t, "STATE")
	p.shows(t, "… 2 more lines") // of the header and three members, three lines fit
	p.shows(t, "\x1b[3A")        // back to the first line
	f.set(func() { f.joining = true })
	p.shows(t, "no other node")
	_ = c.Process.Signal(os.Interrupt)
	c.exits(t, -1) // by the signal, as shells expect
	for l := range strings.SplitSeq(plain(p.screen.String()), "\n") {
		if n := utf8.RuneCountInString(l); n > 40 {
			t.Errorf("%q has %d columns", l, n)
		}
	}
}

// A simulation shows its progress on one line, which is shortened to fit, and is removed at the end.
func TestSimProgress(t *testing.T) {
	f := newFake(t, 3, 64)
	p := openTerminal(t, 24, 24)
	c := f.command(t, nil, io.Discard, "sim", "--nodes", "30", "--for", "10h")
	c.Stderr = p.tty
	c.start(t)
	p.shows(t, "\rmass start: ")
	p.shows(t, "\rrest: ")
	_ = c.Process.Signal(os.Interrupt)
	c.exits(t, 130)
	p.shows(t, "…\x1b[K\r\x1b[K")
	if strings.Contains(p.screen.String(), "\n") {
		t.Errorf("more than one line: %q", p.screen)
	}
	for l := range strings.SplitSeq(p.screen.String(), "\r") {
		if n := utf8.RuneCountInString(plain(l)); n > 23 { // beyond the last column, the line would wrap
			t.Errorf("%q has %d columns", l, n)
		}
	}
}

// Output has colours only on a terminal, and only if the user allows them.
func TestColours(t *testing.T) {
	for set, coloured := range map[string]bool{"NO_COLOR=": true, "NO_COLOR=1": false, "TERM=dumb": false, "TERM=": false} {
		f := newFake(t, 3, 64)
		p := openTerminal(t, 100, 30)
		c := f.command(t, nil, p.tty, "members")
		c.Env = append(c.Env, set)
		c.start(t).exits(t, 0)
		p.shows(t, "node-3")
		if got := strings.Contains(p.screen.String(), "\x1b"); got != coloured {
			t.Errorf("%s: coloured: %v", set, got)
		}
	}
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// roost top takes over the terminal, shows what happens, adapts to the terminal's size, and restores the terminal at
// the end.
func TestTop(t *testing.T) {
	for _, end := range []string{"q", "\x03"} { // in raw mode, Ctrl-C is a key
		f := newFake(t, 3, 64)
		p := openTerminal(t, 120, 24)
		was, err := term.GetState(int(p.tty.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		c := f.command(t, p.tty, p.tty, "top", "--every", "5ms").start(t)
		p.shows(t, "node-3")
		f.awaitStream(t)
		f.join(4)
		p.shows(t, "joined    node-4")
		f.leave("node-4")
		p.shows(t, "left      node-4")
		resume := f.pause()
		p.shows(t, "no answer since")
		resume()
		p.shows(t, "answers again; changes in between are missing")
		p.resize(t, 20, 5)
		p.shows(t, "more lines")
		p.resize(t, 120, 7) // the header and two of three members
		p.shows(t, "node-1 * ")
		p.press(t, "\x1b[Bj")
		p.shows(t, "ZONE\x1b[0m\x1b[K\r\nnode-3")
		p.press(t, "x"+end)
		c.exits(t, 0)
		p.shows(t, leaveScreen)
		if is, err := term.GetState(int(p.tty.Fd())); err != nil || *is != *was {
			t.Errorf("the terminal is left as %v, was %v: %v", is, was, err)
		}
		if !strings.HasPrefix(p.screen.String(), enterScreen) || !strings.HasSuffix(p.screen.String(), leaveScreen) {
			t.Error("the page that was shown before is not shown again")
		}
	}
}

// Without a terminal, roost top says which command to use instead.
func TestTopNeedsTerminal(t *testing.T) {
	f := newFake(t, 3, 64)
	p := openTerminal(t, 80, 24)
	dumb := f.command(t, p.tty, p.tty, "top")
	dumb.Env = append(dumb.Env, "TERM=dumb")
	for name, c := range map[string]*command{
		"pipe":  f.command(t, p.tty, nil, "top"),
		"dumb":  dumb,
		"stdin": f.command(t, strings.NewReader(""), p.tty, "top"),
		"json":  f.command(t, p.tty, p.tty, "top", "--output", "json"),
	} {
		c.start(t).exits(t, 2)
		if !strings.Contains(c.errors.String(), "roost members --watch") {
			t.Errorf("%s: %q", name, &c.errors)
		}
	}
	if p.screen.String() != "" {
		t.Errorf("it wrote %q to the terminal", p.screen)
	}
}

// The report of roost doctor fits on a small terminal, with the worst finding at the top.
func TestDoctorFits(t *testing.T) {
	f := newFake(t, 3, 64)
	f.set(func() {
		f.stats.Rooms = &affinity.Stats{Breaker: "closed", StoreDoubt: true}
		f.stats.Settings = clusterhttp.Settings{TTLMS: 6000, MaxSkewMS: 5000, Join: []string{"seed-1.test:7946", "seed-2.test:7946"}}
	})
	p := openTerminal(t, 80, 24)
	f.command(t, nil, p.tty, "doctor", "--over", "1ms").start(t).exits(t, 4)
	p.shows(t, "sees it")
	text := plain(p.screen.String())
	if lines := strings.Count(text, "\n"); lines >= 24 || !strings.HasPrefix(text, "fail  redis") {
		t.Errorf("it prints %d lines:\n%s", lines, text)
	}
}
