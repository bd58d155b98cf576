package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (p *program) topCommand() *cobra.Command {
	cmd := p.clientCommand(&cobra.Command{
		Use:   "top [flags]",
		Short: "Watch a cluster on the whole terminal",
		Long: `Show, and keep showing, the members in the eyes of the agent that is asked: how old
their leases are, what they own and carry, whose table differs, and what changed
last. q or Ctrl-C ends it; the arrows, or j and k, scroll through members that do
not fit, of whom those in trouble come first. It needs a terminal; for files and
pipes there is roost members --watch.`,
		Example: `  roost top
  roost top --addr 10.0.0.7:8401 --every 500ms`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		if s.json {
			return usageError{"top draws on a terminal; for JSON use: roost members --watch --output json"}
		}
		in, ok := p.stdin.(*os.File)
		if !s.term.moves || !ok || !term.IsTerminal(int(in.Fd())) {
			return usageError{"top needs a terminal whose cursor can be moved (TERM is not dumb); for files and pipes use: roost members --watch"}
		}
		now, err := s.topNow(ctx, clusterhttp.Partitions{})
		if err != nil {
			return err
		}
		return s.top(ctx, in, now)
	}, setting[clientOptions]{
		name: "every", arg: "DURATION", def: "1s", usage: "ask at least this often", flagOnly: true,
		apply: setDuration(func(o *clientOptions) *time.Duration { return &o.every }),
	})
	_ = cmd.Flags().MarkHidden("output") // there is nothing to print
	return cmd
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another page, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	sizeTime    = 200 * time.Millisecond // how soon a new size is noticed; there is no portable signal
)

// top takes the terminal over, and gives it back as it was however it ends.
func (s *session) top(ctx context.Context, in *os.File, first topView) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), was) }()
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(s.out, leaveScreen) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := topping{session: s, news: make(chan []line), answers: make(chan topView), keys: make(chan byte), changed: make(chan struct{}, 1)}
	go t.follow(ctx)
	go t.ask(ctx, first)
	go t.read(ctx, in)
	return t.draw(ctx, first)
}

// topping is what runs while the terminal is taken: one goroutine draws, others
// wait for what there is to draw.
type topping struct {
	*session
	news    chan []line
	changed chan struct{} // there was news: ask now
	answers chan topView
	keys    chan byte
}

// draw writes the page whenever it differs from what is to be seen.
func (t *topping) draw(ctx context.Context, v topView) error {
	resized := time.NewTicker(sizeTime)
	defer resized.Stop()
	shown, typed, skip := "", "", 0
	var log []line
	for {
		columns, lines := t.term.size()
		skip = min(max(0, skip), max(0, len(v.members.Members)-1))
		page := fullPage(v.page(columns, lines, skip, log), columns, lines, t.term.colours)
		if page != shown {
			shown = page
			if _, err := io.WriteString(t.out, page); err != nil {
				return err
			}
		}
		select {
		case v = <-t.answers:
		case lines := <-t.news:
			log = append(log, lines...)
			log = log[max(0, len(log)-keptNews):]
		case <-resized.C:
			v = v.aged(time.Now(), t.every)
		case key := <-t.keys:
			if strings.IndexByte("qQ\x03\x04", key) >= 0 { // Ctrl-C and Ctrl-D, too
				return nil
			}
			typed = typed[max(0, len(typed)-3):] + string(rune(key))
			for keys, by := range scrolling {
				if strings.HasSuffix(typed, keys) {
					skip += by
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// scrolling is by how many members a key scrolls: j, k and the arrows, space, b and
// the keys for pages.
var scrolling = map[string]int{"j": 1, "k": -1, "\x1b[B": 1, "\x1b[A": -1, " ": 10, "b": -10, "\x1b[6~": 10, "\x1b[5~": -10}

// fullPage draws over everything. The terminal is raw: a line feed alone would not
// go back to the left.
func fullPage(page []line, columns, lines int, colours bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range cut(page, columns, lines) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l.in(colours) + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// read hands on what is typed.
func (t *topping) read(ctx context.Context, in io.Reader) {
	typed := make([]byte, 1)
	for {
		n, err := in.Read(typed)
		if err != nil {
			return // signals still end it
		}
		if n > 0 && !hand(ctx, t.keys, typed[0]) {
			return
		}
	}
}

// follow hands on what changes. The first batch of a stream tells what is so, and
// not what is new.
func (t *topping) follow(ctx context.Context) {
	heard := false
	_ = again(ctx, t.Events, func(b events.Batch, first bool) error {
		var news []line
		switch now := time.Now(); {
		case !first:
			news = batchLines(now, b)
		case heard:
			news = textLines(now.Format(time.TimeOnly) + "  " + t.answersAgain() + "; what changed meanwhile is not listed")
		}
		heard = true
		touch(t.changed)
		hand(ctx, t.news, news)
		return nil
	}, func(error) error { return nil })
}

// ask hands on what the agent answers. While it does not, the latest answer is
// shown with the reason.
func (t *topping) ask(ctx context.Context, v topView) {
	again := time.NewTicker(t.every)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-t.changed:
		case <-ctx.Done():
			return
		}
		next, err := t.topNow(ctx, v.table)
		if err == nil {
			v = next
		} else {
			v.fault = explain(err, t.clientOptions).Error()
		}
		if !hand(ctx, t.answers, v) {
			return
		}
	}
}

// hand sends v, and reports false if ctx ended before somebody took it.
func hand[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}
