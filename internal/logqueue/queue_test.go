package logqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// book is a handler that tests can block. It keeps its lines as "level message attributes".
type book struct {
	*page
	slog.Handler
}

type page struct {
	mu    sync.Mutex
	out   bytes.Buffer
	level slog.LevelVar
	hold  chan struct{} // nil = do not wait
	fail  error
	calls int
}

func newBook() book {
	p := new(page)
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return book{p, slog.NewTextHandler(&p.out, &slog.HandlerOptions{Level: &p.level, ReplaceAttr: plain})}
}

func (b book) wait() error {
	b.mu.Lock()
	hold := b.hold
	b.calls++
	b.mu.Unlock()
	if hold != nil {
		<-hold
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}

func (b book) Enabled(ctx context.Context, l slog.Level) bool {
	_ = b.wait()
	return b.Handler.Enabled(ctx, l)
}

func (b book) Handle(ctx context.Context, r slog.Record) error {
	if err := b.wait(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Handler.Handle(ctx, r)
}

func (b book) WithAttrs(attrs []slog.Attr) slog.Handler {
	return book{b.page, b.Handler.WithAttrs(attrs)}
}
func (b book) WithGroup(name string) slog.Handler { return book{b.page, b.Handler.WithGroup(name)} }

func (p *page) set(hold chan struct{}, fail error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.fail = hold, fail
}

// lines returns what was written since the last call.
func (p *page) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.out.Reset()
	return strings.Split(strings.TrimSuffix(p.out.String(), "\n"), "\n")
}

func inBubble(t *testing.T, f func(t *testing.T, b book, log *slog.Logger, q *Queue, end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		log, q, end := Through(slog.New(b))
		defer end()
		f(t, b, log, q, end)
	})
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b book, log *slog.Logger, q *Queue, _ func()) {
		same, other, end := Through(log.With("node", "a").WithGroup("g"))
		log.Info("one", "x", 1, "y", 2, "z", 3, "u", 4, "v", 5, "w", 6)
		same.Warn("two", "x", 1)
		log.Debug("disabled")
		end()
		log.Error("three")
		synctest.Wait()
		expect(t, b.lines(), "level=INFO msg=one x=1 y=2 z=3 u=4 v=5 w=6", "level=WARN msg=two node=a g.x=1", "level=ERROR msg=three")
		if other != q || q.Dropped() != 0 {
			t.Errorf("two queues for one handler: %v; dropped %d", other != q, q.Dropped())
		}
	})
}

// The queue drops the oldest lines, and reports the gap at the place where they are missing.
func TestBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, b book, log *slog.Logger, q *Queue, _ func()) {
		hold := make(chan struct{})
		b.set(hold, nil)
		log.Info("in the handler")
		synctest.Wait()
		const more = 10
		for i := range maxLines + more {
			log.Info(fmt.Sprint(i))
		}
		if q.Dropped() != more {
			t.Errorf("dropped %d lines, want %d", q.Dropped(), more)
		}
		b.set(nil, nil)
		close(hold)
		synctest.Wait()
		got := b.lines()
		expect(t, got[:3], `level=INFO msg="in the handler"`,
			fmt.Sprintf(`level=WARN msg="log lines dropped" lines=%d`, more), fmt.Sprint("level=INFO msg=", more))
		expect(t, got[len(got)-1:], fmt.Sprint("level=INFO msg=", maxLines+more-1))
		if len(got) != maxLines+2 {
			t.Errorf("%d lines", len(got))
		}
		log.Info("later")
		synctest.Wait()
		expect(t, b.lines(), "level=INFO msg=later")
	})
}

// Lines that the handler fails to write are counted. The queue reports them at most once a minute, and once at the end.
func TestFailing(t *testing.T) {
	inBubble(t, func(t *testing.T, b book, log *slog.Logger, q *Queue, end func()) {
		full := errors.New("no space left on device")
		for range 3 {
			for _, err := range []error{full, nil} {
				b.set(nil, err)
				log.Info("x")
				log.Info("y")
				synctest.Wait()
			}
			time.Sleep(noticeEvery / 2)
		}
		x, y := "level=INFO msg=x", "level=INFO msg=y"
		expect(t, b.lines(), `level=WARN msg="log lines dropped" lines=2`, x, y, x, y, `level=WARN msg="log lines dropped" lines=4`, x, y)
		b.set(nil, full)
		log.Info("x")
		synctest.Wait()
		b.set(nil, nil)
		end()
		expect(t, b.lines(), `level=WARN msg="log lines dropped" lines=1`)
		if q.Dropped() != 7 {
			t.Errorf("dropped %d lines, want 7", q.Dropped())
		}
	})
}

// The handler can change its level. The queue does not ask the handler for each line, and never asks in the goroutine
// of the caller.
func TestLevel(t *testing.T) {
	inBubble(t, func(t *testing.T, b book, log *slog.Logger, q *Queue, _ func()) {
		enabled := func(want bool) {
			t.Helper()
			time.Sleep(2 * levelFor)
			for range 1000 {
				log.Enabled(t.Context(), slog.LevelDebug)
			}
			synctest.Wait()
			if got := log.Enabled(t.Context(), slog.LevelDebug); got != want {
				t.Errorf("debug enabled: %v, want %v", got, want)
			}
		}
		enabled(false)
		b.level.Set(slog.LevelDebug)
		calls := b.calls
		enabled(true)
		if more := b.calls - calls; more > 20 {
			t.Errorf("%d calls for a thousand lines", more)
		}
		hold := make(chan struct{})
		b.set(hold, nil)
		b.level.Set(slog.LevelInfo)
		for range 10 {
			enabled(true)
		}
		if len(q.lines) > 1 {
			t.Errorf("%d questions wait", len(q.lines))
		}
		for range maxLines + 1 {
			log.Info("x")
		}
		b.set(nil, nil)
		close(hold)
		enabled(false)
	})
}

// end waits for the handler, but at most for a second. Later lines count as dropped.
func TestEnd(t *testing.T) {
	for _, blocked := range []time.Duration{0, flushTime / 2, time.Hour} {
		inBubble(t, func(t *testing.T, b book, log *slog.Logger, q *Queue, end func()) {
			hold := make(chan struct{})
			b.set(hold, nil)
			time.AfterFunc(blocked, func() { close(hold) })
			log.Info("one")
			log.Info("two")
			began := time.Now()
			end()
			if took := time.Since(began); took != min(blocked, flushTime) {
				t.Errorf("took %v", took)
			}
			end()
			log.Info("late")
			want := uint64(1)
			if blocked > flushTime {
				want++ // "two"
			}
			if q.Dropped() != want {
				t.Errorf("dropped %d lines, want %d", q.Dropped(), want)
			}
			time.Sleep(blocked)
			synctest.Wait()
			select {
			case <-q.done:
			default:
				t.Error("the goroutine still runs")
			}
		})
	}
}

// Many goroutines log concurrently. Each line is either written or counted.
func TestConcurrent(t *testing.T) {
	b := newBook()
	log, q, end := Through(slog.New(b))
	const writers, each = 8, 3000
	var wait sync.WaitGroup
	for w := range writers {
		log := log.With("w", w)
		wait.Go(func() {
			for i := range each {
				log.Info("x", "i", i)
			}
		})
	}
	wait.Wait()
	end()
	all := strings.Join(b.lines(), "\n")
	written, said := strings.Count(all, "msg=x "), strings.Count(all, "log lines dropped")
	if uint64(written)+q.Dropped() != writers*each {
		t.Errorf("%d lines written, %d dropped, of %d", written, q.Dropped(), writers*each)
	}
	if q.Dropped() > 0 && said == 0 {
		t.Error("no line says that lines are missing")
	}
}
