package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
)

// halves is a link that divides the next Swap before a command.
type halves struct {
	addr    string
	before  string        // how the command begins
	divide  chan struct{} // one token for each Swap to divide
	divided chan struct{} // a token when the first half is sent
	rest    chan struct{} // a token sends the second half
}

func newHalves(t *testing.T, target, before string) *halves {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &halves{listener.Addr().String(), before, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(client, server) }()
			go func() {
				defer server.Close()
				defer client.Close()
				h.forward(server, client)
			}()
		}
	}()
	return h
}

func (h *halves) forward(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		some := buf[:n]
		if at := bytes.LastIndex(some, []byte(h.before)); at >= 0 && len(h.divide) > 0 {
			<-h.divide
			if _, err := to.Write(some[:at]); err != nil {
				return
			}
			some = some[at:]
			h.divided <- struct{}{}
			<-h.rest
		}
		if _, err := to.Write(some); err != nil {
			return
		}
	}
}

const (
	caching = "*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING"
	pttl    = "*2\r\n$4\r\nPTTL"
)

// change is what another client does to a pin while a Swap is divided.
func (h *halves) change(
	t *testing.T,
	server *redistest.Server,
	after string,
	swapped func() pinstore.Result,
	change func(),
) pinstore.Result {
	t.Helper()
	before := server.Commands()[after]
	h.divide <- struct{}{}
	answer := make(chan pinstore.Result)
	go func() { answer <- swapped() }()
	<-h.divided
	redistest.Eventually(t, "the first half", func() error {
		if server.Commands()[after] == before {
			return errors.New("it has not run")
		}
		return nil
	})
	change()
	h.rest <- struct{}{}
	return <-answer
}

var changes = map[string]pinstore.Op{
	"moved":    {If: pinstore.Pin{Incarnation: node("n", 1)}, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour},
	"released": {If: pinstore.Pin{Incarnation: node("n", 1)}},
	"claimed":  {Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour},
}

// A pin that changes after the script has read it, and before the connection tracks it, counts as
// changed: no notification would ever come.
func TestChangeBeforeItIsTracked(t *testing.T) {
	server := redistest.Start(t)
	h := newHalves(t, server.Addr(), caching)
	s, other := ready(t, Options{URL: "redis://" + h.addr}), ready(t, Options{URL: server.URL()})
	notified := listen(s)
	swap(t, s, first("warm", node("n", 1))) // the script is there now
	for name, change := range changes {
		change.Partition, change.Room = 17, name
		if change.If != (pinstore.Pin{}) {
			swap(t, other, first(name, node("n", 1)))
		}
		notified.reset()
		vain := pinstore.Op{Partition: 17, Room: name, If: pinstore.Pin{Incarnation: node("x", 1)}}
		got := h.change(t, server, "evalsha", func() pinstore.Result { return s.Swap(t.Context(), vain)[0] }, func() { swap(t, other, change) })
		if got.Err != nil || got.Fresh != 0 || got.Pin.Incarnation != change.If.Incarnation || !slices.Equal(notified.all(), []string{name}) {
			t.Errorf("%s: %+v, notified of %q; want the pin as it was, no freshness and one notification", name, got, notified.all())
		}
	}
	// Without a change in between the answer is fresh, and the next change is noticed.
	notified.reset()
	if got := swap(t, s, read("claimed")); got.Fresh != maxFresh || got.Pin.Incarnation != node("m", 1) {
		t.Errorf("%+v; want a fresh pin", got)
	}
	swap(t, other, pinstore.Op{Partition: 17, Room: "claimed", If: pinstore.Pin{Incarnation: node("m", 1)}})
	redistest.Eventually(t, "the change", func() error { return notified.have("claimed") })
}

// A pin that changes after it is read, and before its TTL is: the notification comes before the answer, which has the
// needs of the pin that was read.
func TestChangeWhileItIsRead(t *testing.T) {
	server := redistest.Start(t)
	h := newHalves(t, server.Addr(), pttl)
	s, other := ready(t, Options{URL: "redis://" + h.addr}), ready(t, Options{URL: server.URL()})
	notified := listen(s)
	for name, change := range changes {
		change.Partition, change.Room = 17, name
		var was pinstore.Pin
		if change.If != (pinstore.Pin{}) {
			op := first(name, node("n", 1))
			op.Set.Needs = "p=1"
			was = swap(t, other, op).Pin
		}
		if change.Set != (pinstore.Pin{}) {
			change.Set.Needs = "p=2"
		}
		notified.reset()
		got := h.change(t, server, "mget", func() pinstore.Result { return s.Swap(t.Context(), read(name))[0] },
			func() { swap(t, other, change) })
		if got.Err != nil || got.Done != (name == "claimed") || got.Pin != was || !slices.Equal(notified.all(), []string{name}) {
			t.Errorf("%s: %+v, notified of %q; want the pin as it was, and one notification", name, got, notified.all())
		}
		if name == "released" && got.Fresh != 0 {
			t.Errorf("a pin that has gone is fresh for %v", got.Fresh)
		}
	}
}

// A server that looks like one, and keeps its keys on several, refuses a script with the keys of
// several partitions. Each op is then performed, once.
func TestScattered(t *testing.T) {
	cluster := redistest.StartCluster(t, 1, 0)
	s := ready(t, Options{URL: cluster.URL()})
	opt, _, err := s.opt.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opt.ForceSingleClient = true
	plain, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	s.link.Swap(&link{pins: plain, plain: plain, one: true}).close()
	reads := make([]pinstore.Op, 3*maxOps)
	ops := make([]pinstore.Op, 3*maxOps)
	for i := range ops {
		ops[i] = first(fmt.Sprint("room ", i), node("n", 1))
		if i >= maxOps { // the first batch is of one partition, and is not refused
			ops[i].Partition = placement.Partition(i % 5)
		}
		reads[i] = pinstore.Op{Partition: ops[i].Partition, Room: ops[i].Room}
	}
	refused := func() {
		t.Helper()
		if !s.link.Load().split.Swap(false) {
			t.Error("the server has refused nothing; want a refusal")
		}
	}
	for range 2 {
		for i, r := range s.Swap(t.Context(), ops...) {
			if r.Err != nil || !r.Done || r.Pin.Incarnation != node("n", 1) {
				t.Fatalf("op %d: %+v", i, r)
			}
			ops[i].If = r.Pin // the second time each is refreshed
		}
	}
	refused()
	for i, r := range s.Swap(t.Context(), reads...) {
		if r.Err != nil || r.Pin != ops[i].If {
			t.Fatalf("read %d: %+v, want %v", i, r, ops[i].If)
		}
	}
	refused()
}
