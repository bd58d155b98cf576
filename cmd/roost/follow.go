package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// view is what a command shows, of one moment.
type view struct {
	answer any                      // what --output json prints
	counts any                      // what of it makes a change worth another print
	page   func(columns int) []line // 0 columns: no limit
}

// followSettings are those of commands that show a view.
func followSettings(every time.Duration) []setting[clientOptions] {
	return []setting[clientOptions]{
		{
			name: "watch", short: "w", arg: "bool", usage: "stay, and show it again when it changes: in place on a terminal, else below each other",
			apply: setBool(func(o *clientOptions) *bool { return &o.watch }), flagOnly: true,
		},
		{
			name: "every", arg: "DURATION", usage: fmt.Sprintf("with --watch: ask at least this often (default %v)", every),
			apply: setDuration(func(o *clientOptions) *time.Duration { return &o.every }), flagOnly: true,
		},
	}
}

// viewCommand completes a command that shows what ask returns, once or, with
// --watch, until Ctrl-C. With news it asks again at once.
func (p *program) viewCommand(
	cmd *cobra.Command, every time.Duration,
	ask func(context.Context, *session) (view, error),
	news func(context.Context, *session, chan<- struct{}),
	own ...setting[clientOptions],
) *cobra.Command {
	return p.clientCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		if s.every != 0 && !s.watch {
			return usageError{"--every says how often to ask again: add --watch"}
		}
		s.every = cmp.Or(s.every, every)
		bounded := func() (view, error) {
			ctx, cancel := s.bound(ctx)
			defer cancel()
			return ask(ctx, s)
		}
		v, err := bounded()
		switch {
		case err != nil:
			return err
		case s.watch:
			changed := make(chan struct{}, 1)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go news(ctx, s, changed)
			return s.follow(ctx, v, bounded, changed)
		case s.json:
			return s.printJSON(v.answer)
		}
		columns, _ := s.term.size()
		return s.printLines(v.page(columns))
	}, append(own, followSettings(every)...)...)
}

// follow shows v and what comes after it. An agent that does not answer may be
// about to come back, so it goes on.
func (s *session) follow(ctx context.Context, v view, ask func() (view, error), changed <-chan struct{}) error {
	again := time.NewTicker(s.every)
	defer again.Stop()
	show := s.append
	if s.term.moves && !s.json {
		show = (&screen{term: s.term, out: s.out}).show
	}
	for fault := ""; ; {
		if err := show(v, fault); err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		next, err := ask()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			v, fault = next, ""
		default:
			fault = explain(err, s.clientOptions).Error()
		}
	}
}

// appended is what was printed last where output is added to output.
type appended struct {
	counts any
	fault  string
}

// append prints v if it differs from what was printed last, and a fault, once, on
// standard error.
func (s *session) append(v view, fault string) error {
	last := s.last
	s.last = appended{v.counts, fault}
	switch fault {
	case last.fault:
	case "":
		complain(s.fault, s.answersAgain())
	default:
		complain(s.fault, fault)
	}
	if fault != "" || reflect.DeepEqual(last.counts, v.counts) {
		return nil
	}
	if s.json {
		return s.printJSON(v.answer)
	}
	if last.counts != nil {
		_, _ = io.WriteString(s.out, "\n")
	}
	columns, _ := s.term.size()
	stamp := textLine(time.Now().Format(time.DateTime))
	return s.printLines(append([]line{stamp}, v.page(columns)...))
}

func (s *session) answersAgain() string { return "the agent at " + s.addr + " answers again" }

// screen draws over what it drew last.
type screen struct {
	out            io.Writer
	term           terminal
	drawn          int // lines
	columns, lines int // of the terminal then
}

func (d *screen) show(v view, fault string) error {
	columns, lines := d.term.size()
	page := v.page(columns)
	if fault != "" {
		page = append([]line{{{strings.ReplaceAll(fault, "\n", "; "), bad}}}, page...)
	}
	home := ""
	if d.drawn > 0 {
		home = fmt.Sprintf("\r\x1b[%dA", d.drawn)
	}
	if d.drawn > 0 && (columns != d.columns || lines != d.lines) {
		home = "\x1b[2J\x1b[H" // the terminal has moved what was drawn
	}
	d.columns, d.lines = columns, lines
	page = cut(page, columns, cmp.Or(lines, len(page)+1)-1)
	d.drawn = len(page)
	var b strings.Builder
	b.WriteString(home)
	for _, l := range page {
		b.WriteString(l.in(d.term.colours) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(d.out, b.String())
	return err
}

// cut makes a page fit so many columns and lines.
func cut(page []line, columns, lines int) []line {
	lines = max(1, lines)
	if more := len(page) - lines; more > 0 {
		page = append(page[:lines-1:lines-1], line{{fmt.Sprintf("… %d more lines", more+1), faint}})
	}
	if columns > 0 {
		for i := range page {
			page[i] = page[i].clipped(columns)
		}
	}
	return page
}

// againAfter is how soon a stream that has ended is opened again.
const againAfter = time.Second

// again hands on what a stream tells, first what opens it, and opens it again
// whenever it ends. It returns when ctx ends, or with the error that take or lost
// return.
func again[T any](
	ctx context.Context, stream func(context.Context) iter.Seq2[T, error],
	take func(event T, first bool) error, lost func(error) error,
) error {
	for ctx.Err() == nil {
		first := true
		for event, err := range stream(ctx) {
			if err != nil {
				err = lost(err)
			} else {
				err = take(event, first)
			}
			if err != nil {
				return err
			}
			first = false
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
		}
	}
	return nil
}

// nudge tells changed of every event of a stream.
func nudge[T any](ctx context.Context, stream func(context.Context) iter.Seq2[T, error], changed chan<- struct{}) {
	_ = again(ctx, stream, func(T, bool) error { touch(changed); return nil }, func(error) error { return nil })
}

func touch(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // it has been told already
	}
}
