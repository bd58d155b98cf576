package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// postOffice is a connection that delivers messages to its subscriber, unless it is dead.
type postOffice struct {
	redisconn.Conn // other commands are not implemented

	dead   atomic.Bool
	fail   error // of PUBLISH
	lost   func()
	letter chan string
	ended  chan struct{} // a value ends the subscription
}

func (p *postOffice) Clustered() (bool, error) { return false, nil }

func (p *postOffice) OnLoss(lost func()) { p.lost = lost }

func (p *postOffice) Close() error { return nil }

func (p *postOffice) Do(ctx context.Context, commands ...redisconn.Command) []redisconn.Reply {
	if p.fail != nil {
		return redisconn.Failed(len(commands), p.fail)
	}
	if !p.dead.Load() {
		select {
		case p.letter <- commands[0].Head[2]:
		case <-ctx.Done():
		}
	}
	return make([]redisconn.Reply, len(commands))
}

func (p *postOffice) Subscribe(ctx context.Context, _ string, message func(string)) error {
	for {
		select {
		case m := <-p.letter:
			message(m)
		case <-p.ended:
			return errors.New("the server has gone")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The store relies on its subscription only while it receives the messages that it sends to itself.
func TestSubscription(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*postOffice)
		after  func(*postOffice)
		within time.Duration
		works  bool     // whether the subscription works at the end
		heard  []string // since after
	}{
		"works":                  {within: time.Minute, works: true},
		"delivers nothing":       {before: func(p *postOffice) { p.dead.Store(true) }, within: time.Minute},
		"may not publish":        {before: func(p *postOffice) { p.fail = redisconn.Error("NOPERM no") }, within: time.Minute},
		"delivers nothing later": {after: func(p *postOffice) { p.dead.Store(true) }, within: 11 * time.Second, heard: []string{""}},
		"ends":                   {after: func(p *postOffice) { p.ended <- struct{}{} }, within: time.Second, works: true, heard: []string{""}},
		"loses another link":     {after: func(p *postOffice) { p.lost() }, within: time.Second, works: true, heard: []string{""}},
		"gets a change":          {after: func(p *postOffice) { p.letter <- "x\na\nb" }, within: time.Second, works: true, heard: []string{"a", "b"}},
		"gets nonsense":          {after: func(p *postOffice) { p.letter <- "x\n\n"; p.letter <- "" }, within: time.Second, works: true},
		"comes back after a pause": {after: func(p *postOffice) {
			p.dead.Store(true)
			time.Sleep(15 * time.Second)
			p.dead.Store(false)
		}, within: time.Minute, works: true, heard: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &postOffice{letter: make(chan string), ended: make(chan struct{})}
				if c.before != nil {
					c.before(p)
				}
				s, err := New(p, Options{})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if works := s.Notified() == nil; works != (c.before == nil) {
					t.Fatal(s.Notified())
				}
				heard := listen(s)
				if c.after != nil {
					c.after(p)
				}
				time.Sleep(c.within)
				synctest.Wait()
				if works := s.Notified() == nil; works != c.works || !slices.Equal(heard.all(), c.heard) {
					t.Errorf("%v; heard %q, want %q", s.Notified(), heard.all(), c.heard)
				}
				_ = s.Close()
			})
		})
	}
}
