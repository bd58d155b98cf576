package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
)

// View is what a command shows at one point in time.
type View struct {
	Answer any                           // for --output json
	Counts any                           // if this part changes, the view is printed again
	Page   func(columns int) []term.Line // 0 columns means no limit
	Rest   time.Duration                 // minimum time until the next request
}

// Viewer shows a view once or, with --watch, until ctx ends.
type Viewer struct {
	Ask   func(context.Context, *Session) (View, error)
	News  func(context.Context, *Session, chan<- struct{}) // notifies the channel when to ask again at once; may be nil
	Every time.Duration                                    // default interval with --watch

	watch bool
	every time.Duration
}

// Settings returns the settings of a viewer.
func (f *Viewer) Settings() []settings.Setting {
	return []settings.Setting{
		{
			Name: "watch", Short: "w", Arg: "bool", Set: settings.Bool(&f.watch), FlagOnly: true,
			Usage: "keep showing changes: in place on a terminal, otherwise one below the other",
		},
		{
			Name: "every", Arg: "DURATION", Set: settings.Duration(&f.every), FlagOnly: true,
			Usage: fmt.Sprintf("with --watch: ask at least this often (default %v)", f.Every),
		},
	}
}

// Run shows the view.
func (f *Viewer) Run(ctx context.Context, s *Session) error {
	if f.every != 0 && !f.watch {
		return settings.UsageError("--every needs --watch")
	}
	v, err := f.ask(ctx, s)
	switch {
	case err != nil:
		return err
	case f.watch:
		return f.follow(ctx, s, v)
	case s.JSON:
		return s.PrintJSON(v.Answer)
	}
	columns, _ := s.Term.Size()
	return s.PrintLines(v.Page(columns))
}

func (f *Viewer) ask(ctx context.Context, s *Session) (View, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	return f.Ask(ctx, s)
}

// follow shows v and the views after it. If the agent does not answer, follow continues, because the agent
// can come back.
func (f *Viewer) follow(ctx context.Context, s *Session, v View) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	if f.News != nil {
		go f.News(ctx, s, changed)
	}
	again := time.NewTicker(cmp.Or(f.every, f.Every))
	defer again.Stop()
	show := s.appending()
	if s.Term.Moves && !s.JSON {
		show = s.redraw(&term.Screen{Term: s.Term, Out: s.Out})
	}
	for problem := ""; ; {
		if err := show(v, problem); err != nil {
			return err
		}
		if !waited(ctx, v.Rest, again.C, changed) {
			return nil
		}
		next, err := f.ask(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			v, problem = next, ""
		default:
			problem = s.Explain(err).Error()
		}
	}
}

// waited waits for the duration rest, and then until there is a reason to ask again: a tick of again or a change. If
// ctx ends first, waited returns false.
func waited(ctx context.Context, rest time.Duration, again <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return false
	}
	select {
	case <-again:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}

func (s *Session) redraw(screen *term.Screen) func(View, string) error {
	return func(v View, problem string) error {
		return screen.Show(func(columns int) []term.Line {
			page := v.Page(columns)
			if problem != "" {
				page = append([]term.Line{{{Text: strings.ReplaceAll(problem, "\n", "; "), Tone: term.Bad}}}, page...)
			}
			return page
		})
	}
}

// appending returns a function that prints a view if it differs from the previous view. The function prints
// each new problem once, on standard error.
func (s *Session) appending() func(View, string) error {
	var counts any
	last := ""
	return func(v View, problem string) error {
		if problem != last {
			term.Complain(s.Err, cmp.Or(problem, s.AnswersAgain()))
		}
		had := counts
		counts, last = v.Counts, problem
		switch {
		case problem != "" || reflect.DeepEqual(had, v.Counts):
			return nil
		case s.JSON:
			return s.PrintJSON(v.Answer)
		case had != nil:
			_, _ = io.WriteString(s.Out, "\n")
		}
		columns, _ := s.Term.Size()
		stamp := term.TextLine(time.Now().Format(time.DateTime))
		return s.PrintLines(append([]term.Line{stamp}, v.Page(columns)...))
	}
}

// AnswersAgain returns the message that the agent answers again.
func (s *Session) AnswersAgain() string { return "the agent at " + s.Addr + " answers again" }

// reopenAfter is how long Stream waits before it reopens a stream that has ended.
const reopenAfter = time.Second

// Stream passes each event of a stream to take and each error to lost, and reopens the stream whenever it ends. Stream
// returns when ctx ends, or with the first error that take or lost returns.
func Stream[T any](
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
		case <-time.After(reopenAfter):
		case <-ctx.Done():
		}
	}
	return nil
}

// Nudge notifies changed whenever the stream has an event.
func Nudge[T any](ctx context.Context, stream func(context.Context) iter.Seq2[T, error], changed chan<- struct{}) {
	_ = Stream(ctx, stream, func(T, bool) error { Touch(changed); return nil }, func(error) error { return nil })
}

// Touch sends to a channel with a buffer of one, and does nothing if the buffer is full.
func Touch(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
