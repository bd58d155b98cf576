package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
	"golang.org/x/term"
)

// background runs a command until the test ends it.
type background struct {
	t          *testing.T
	out, fault *agentproc.Log
	code       chan int
	stop       context.CancelFunc
}

func inBackground(t *testing.T, env map[string]string, stdin io.Reader, stdout io.Writer, args ...string) *background {
	t.Helper()
	b := &background{t: t, out: new(agentproc.Log), fault: new(agentproc.Log), code: make(chan int, 1)}
	if stdout == nil {
		stdout = b.out
	}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	t.Cleanup(stop)
	go func() {
		b.code <- run(ctx, args, func(name string) string { return env[name] }, stdin, stdout, b.fault)
	}()
	return b
}

// exits waits for the end.
func (b *background) Exits(code int) {
	b.t.Helper()
	select {
	case got := <-b.code:
		if got != code {
			b.t.Errorf("exits with %d, want %d: %s", got, code, b.fault)
		}
	case <-time.After(patience):
		b.t.Fatal("does not end")
	}
}

// shows waits until the text comes up in what is printed.
func (b *background) shows(what fmt.Stringer, text string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if !strings.Contains(what.String(), text) {
			return fmt.Errorf("no %q in %q (%q)", text, what, b.fault)
		}
		return nil
	})
}

// TestWatchAppends: where output is added to output, nothing is printed but
// changes; ages and loads are none. An agent that is away is mentioned once.
func TestWatchAppends(t *testing.T) {
	f := newFake(t)
	calm := healthy()["GET /v1/members"].(clusterhttp.Members)
	f.set("GET /v1/members", func(n int) any {
		m := calm
		m.Members = append([]clusterhttp.Member{}, calm.Members...)
		m.Members[0].AgeMS, m.Members[0].Load, m.Members[0].ClockOffsetMS = int64(n), int64(n), int64(n)
		return m
	})
	asked := func(more int) {
		t.Helper()
		until := f.times("GET /v1/members") + more
		eventually(t, func() error {
			if f.times("GET /v1/members") < until {
				return errors.New("does not ask")
			}
			return nil
		})
	}
	b := inBackground(t, f.env, nil, nil, "members", "--watch", "--every", "2ms")
	asked(5)
	if n := strings.Count(b.out.String(), "STATE"); n != 1 {
		t.Errorf("printed %d times although nothing changed:\n%s", n, b.out)
	}
	changed := calm
	changed.Members = append([]clusterhttp.Member{}, calm.Members...)
	changed.Members[2].State = lease.Draining
	f.set("GET /v1/members", changed)
	b.shows(b.out, "draining")
	f.set("GET /v1/members", clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "it has left"})
	b.shows(b.fault, "roost: it has left\n")
	asked(5)
	f.set("GET /v1/members", calm)
	b.shows(b.fault, "answers again\n")
	eventually(t, func() error {
		if n := strings.Count(b.out.String(), "STATE"); n != 3 {
			return fmt.Errorf("printed %d times, want 3", n)
		}
		return nil
	})
	b.stop()
	b.Exits(exitOK)
	if n := strings.Count(b.fault.String(), "it has left"); n != 1 {
		t.Errorf("told %d times that there is no answer", n)
	}
	if strings.Contains(b.out.String(), "\x1b") {
		t.Errorf("escape sequences where there is no terminal: %q", b.out)
	}
}

// TestWatchNews: an event is reason enough to ask at once.
func TestWatchNews(t *testing.T) {
	for command, news := range map[string]any{"members": someBatch(), "partitions": someBatch(), "rooms": affinity.MovedBatch{}} {
		f := newFake(t)
		b := inBackground(t, f.env, nil, nil, command, "--watch", "--every", "1h", "--output", "json")
		b.shows(b.out, "\n")
		m, p := healthy()["GET /v1/members"].(clusterhttp.Members), healthy()["GET /v1/partitions"].(clusterhttp.Partitions)
		m.Version, p.Version = 13, 13
		f.set("GET /v1/members", m)
		f.set("GET /v1/partitions", p)
		f.set("GET /v1/rooms", clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "new", Epoch: 13}}})
		f.stream <- news
		b.shows(b.out, map[bool]string{true: `"epoch":13`, false: `"version":13`}[command == "rooms"])
		b.stop()
		b.Exits(exitOK)
	}
}

// TestWatchFirst: what is wrong at the start is a failure.
func TestWatchFirst(t *testing.T) {
	for _, args := range [][]string{{"rooms", "--watch"}, {"watch"}} {
		if code, _, fault := roost(t, append(args, "--addr", "127.0.0.1:1")...); code != exitFailed || !strings.Contains(fault, "no agent answers") {
			t.Errorf("%v: %d %q", args, code, fault)
		}
	}
}

// TestWatchComesBack: whoever watches goes on when the agent does, and is told of
// the gap, once.
func TestWatchComesBack(t *testing.T) {
	f := newFake(t)
	f.env["ROOST_ADDR"] = "http://me:secret@" + f.env["ROOST_ADDR"]
	b := inBackground(t, f.env, nil, nil, "watch")
	f.stream <- someBatch()
	b.shows(b.out, "joined    node-d")
	f.set("events", false)
	f.stream <- nil // ends this stream
	b.shows(b.fault, "trying again\n")
	f.set("events", true)
	later := someBatch()
	later.Version = 99
	f.stream <- later
	b.shows(b.out, "v99")
	b.stop()
	b.Exits(exitOK)
	address := strings.Replace(f.env["ROOST_ADDR"], "me:secret", "…", 1)
	want := "roost: the agent at " + address + " has ended, or is not reached; trying again\n" +
		"roost: the agent at " + address + " answers again: what follows first is so now\n"
	if got := b.fault.String(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// terminalOf is a pseudo terminal, and what a command has written to it.
type terminalOf struct {
	tty, master *os.File
	screen      *agentproc.Log
}

func openTerminal(t *testing.T, columns, lines uint16) terminalOf {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	p := terminalOf{tty, master, new(agentproc.Log)}
	p.resize(t, columns, lines)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p.screen, master)
	}()
	t.Cleanup(func() {
		_, _ = master.WriteString("\n") // for whoever still reads keys
		_ = tty.Close()
		<-read // it ends when nobody has the other side open
		_ = master.Close()
	})
	return p
}

func (p terminalOf) resize(t *testing.T, columns, lines uint16) {
	t.Helper()
	if err := pty.Setsize(p.master, &pty.Winsize{Cols: columns, Rows: lines}); err != nil {
		t.Fatal(err)
	}
}

// TestWatchRedraws: on a terminal the table is drawn in its place, and fits.
func TestWatchRedraws(t *testing.T) {
	f := newFake(t)
	p := openTerminal(t, 40, 4)
	b := inBackground(t, f.env, nil, p.tty, "members", "-w", "--every", "2ms")
	b.shows(p.screen, "STATE")
	b.shows(p.screen, "… 2 more lines") // of the header and three members, three lines fit
	b.shows(p.screen, "\x1b[3A")        // back to the first
	f.set("GET /v1/members", clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "it has left"})
	b.shows(p.screen, "it has left")
	b.stop()
	b.Exits(exitOK)
	for l := range strings.SplitSeq(p.screen.String(), "\n") {
		if text := uncoloured(l); columnsOf(text) > 40 {
			t.Errorf("%q has %d columns", text, columnsOf(text))
		}
	}
}

// uncoloured removes escape sequences.
func uncoloured(s string) string {
	var b strings.Builder
	escape := false
	for _, r := range strings.TrimRight(s, "\r") {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r == '[' || r == '?' || (r >= '0' && r <= '9') || r == ';'
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// TestColours: on a terminal alone, and not against the user's wish.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		coloured        bool
	}{{"NO_COLOR", "", true}, {"NO_COLOR", "1", false}, {"TERM", "dumb", false}, {"TERM", "", false}} {
		f := newFake(t)
		f.env[c.variable] = c.value
		p := openTerminal(t, 100, 30)
		b := inBackground(t, f.env, nil, p.tty, "members")
		b.Exits(exitOK)
		b.shows(p.screen, "node-c")
		if got := strings.Contains(p.screen.String(), "\x1b"); got != c.coloured {
			t.Errorf("%s=%q: coloured: %v", c.variable, c.value, got)
		}
	}
}

// TestTop: it takes the terminal over, shows what happens, follows the terminal's
// size, and gives the terminal back as it was.
func TestTop(t *testing.T) {
	for _, end := range []string{"q", "\x03"} { // raw, Ctrl-C is a key
		f := newFake(t)
		p := openTerminal(t, 120, 24)
		was, err := term.GetState(int(p.tty.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		b := inBackground(t, f.env, p.tty, p.tty, "top", "--every", "5ms")
		b.shows(p.screen, "node-c")
		f.stream <- someBatch()
		f.stream <- someBatch()
		b.shows(p.screen, "joined    node-d")
		f.stream <- nil // the stream ends, and the next one begins
		f.stream <- someBatch()
		b.shows(p.screen, "answers again; what changed meanwhile is not listed")
		p.resize(t, 20, 5)
		b.shows(p.screen, "more lines")
		p.resize(t, 120, 7) // the header and two of three members
		b.shows(p.screen, "node-a * ")
		if _, err := p.master.WriteString("\x1b[Bj"); err != nil {
			t.Fatal(err)
		}
		b.shows(p.screen, "ZONE\x1b[0m\x1b[K\r\nnode-c")
		f.set("GET /v1/members", clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "it has left"})
		p.resize(t, 120, 24)
		b.shows(p.screen, "no answer since")
		if _, err := p.master.WriteString("x" + end); err != nil {
			t.Fatal(err)
		}
		b.Exits(exitOK)
		b.shows(p.screen, leaveScreen)
		if is, err := term.GetState(int(p.tty.Fd())); err != nil || *is != *was {
			t.Errorf("the terminal is left as %v, was %v: %v", is, was, err)
		}
		if !strings.HasPrefix(p.screen.String(), enterScreen) || !strings.HasSuffix(p.screen.String(), leaveScreen) {
			t.Error("the page that was shown before is not shown again")
		}
	}
}

// TestTopNeedsTerminal: it says what to do instead.
func TestTopNeedsTerminal(t *testing.T) {
	f := newFake(t)
	p := openTerminal(t, 80, 24)
	dumb := map[string]string{"ROOST_ADDR": f.env["ROOST_ADDR"], "TERM": "dumb"}
	for name, b := range map[string]*background{
		"pipe":  inBackground(t, f.env, p.tty, nil, "top"),
		"dumb":  inBackground(t, dumb, p.tty, p.tty, "top"),
		"stdin": inBackground(t, f.env, strings.NewReader(""), p.tty, "top"),
		"json":  inBackground(t, f.env, p.tty, p.tty, "top", "--output", "json"),
	} {
		b.Exits(exitUsage)
		if !strings.Contains(b.fault.String(), "roost members --watch") {
			t.Errorf("%s: %q", name, b.fault)
		}
	}
	if p.screen.String() != "" {
		t.Errorf("it wrote %q to the terminal", p.screen)
	}
}
