package firewall

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"
)

// ErrBusy means that the other side closed a stream to make room for others.
var ErrBusy = errors.New("gossip: the other side is busy with other streams")

// Stream is a TCP connection between this node and another one. Its message is read and checked before memberlist reads
// it: in the first Read at the latest, on the goroutine of the connection. Read and SetDeadline must not be called concurrently.
//
// While the functions of Config have a stream, Read reads what the other side sends, unchecked. What is written to Conn
// is no message, so it does not keep the firewall from saying that this node is busy.
type Stream struct {
	net.Conn
	firewall *Firewall
	place    *place
	in       *bufio.Reader
	incoming bool // another node opened the stream
	ours     bool // a function of Config has it
	taken    bool // Config.Incoming took it
	looked   int  // bytes that Head looked at
	deadline time.Time
	checked  bool
	message  []byte // which memberlist has not read yet
	nodes    int    // of the exchange in it
	err      error
}

func (f *Firewall) stream(p *place, incoming bool) *Stream {
	return &Stream{Conn: p.conn, firewall: f, place: p, in: bufio.NewReaderSize(p.conn, maxHead), incoming: incoming}
}

// Head looks at how the stream goes on: the label, if it has one, and the type behind it. It waits for both.
func (s *Stream) Head() (label string, kind byte, err error) {
	h := head{r: s.in}
	if kind = h.byte(); kind == typeLabel {
		label = string(h.next(int(h.byte())))
		kind = h.byte()
	}
	s.looked = h.at
	return label, kind, h.err
}

// Skip reads what Head looked at last.
func (s *Stream) Skip() { _, _ = s.in.Discard(s.looked) } // they are buffered

// Buffered returns how many bytes the other side has sent that were received, and not read.
func (s *Stream) Buffered() int { return s.in.Buffered() }

// Host returns what counts as one host: an address of IPv4, or a network of IPv6.
func (s *Stream) Host() netip.Addr { return s.place.from }

// Reject counts the stream as rejected. cluster is the name that it gave, with WrongCluster.
func (s *Stream) Reject(why Why, cluster string) {
	s.firewall.cfg.Rejections.note(why, TCP, addrPort(s.RemoteAddr()), cluster)
}

// Rest gives back what the stream takes of the bounds of streams, and its buffer. Nobody may use anything but its Conn
// afterwards.
func (s *Stream) Rest() {
	s.place.leave()
	s.in = nil
}

// lend gives the stream to a function of Config.
func (s *Stream) lend(to func() error) error {
	s.ours = true
	defer func() { s.ours = false }()
	return to()
}

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	s.deadline = t
	return s.Conn.SetDeadline(t)
}

// Read reads the message, once it is complete and checked.
func (s *Stream) Read(p []byte) (int, error) {
	if s.ours {
		return s.in.Read(p)
	}
	s.check()
	switch {
	case s.err != nil:
		return 0, s.err
	case len(s.message) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.message)
	if s.message = s.message[n:]; len(s.message) == 0 {
		s.message = nil
	}
	return n, nil
}

// Write counts what the other side takes. It explains the end of a stream that the other side
// closed to make room.
func (s *Stream) Write(p []byte) (done int, err error) {
	if !s.ours && len(p) > 0 && p[0] == typeEncrypt { // memberlist writes a label by itself, and a message at once
		s.firewall.cfg.Ring.countSealed()
	}
	if !s.place.begins(writesMessage) {
		s.place.closeBusy()
		return 0, ErrEvicted
	}
	s.firewall.places.sent(len(p))
	for err == nil && done < len(p) {
		var n int
		n, err = s.Conn.Write(p[done:min(len(p), done+pieceSize)])
		done += n
		s.place.moved.Add(int64(n))
	}
	if err != nil && !s.incoming {
		if s.check(); errors.Is(s.err, ErrBusy) {
			err = ErrBusy
		}
	}
	return done, err
}

// check waits for the message and checks it, once.
func (s *Stream) check() {
	if s.checked {
		return
	}
	s.checked = true
	var h head
	if h, s.err = s.readHead(); s.err == nil && !s.taken {
		s.message, s.err = s.read(h)
	}
	if errors.Is(s.err, ErrHead) || s.incoming && errors.Is(s.err, os.ErrDeadlineExceeded) {
		s.firewall.dropped.Add(1)
	}
}

func (s *Stream) readHead() (h head, err error) {
	deadline := s.deadline
	if !s.incoming {
		s.place.until = deadline
	} else {
		if err := s.SetReadDeadline(time.Now().Add(s.firewall.cfg.HeadTimeout)); err != nil {
			return h, err
		}
		deadline = s.place.until
		err := s.lend(func() (err error) {
			s.taken, err = s.firewall.cfg.Incoming(s)
			return err
		})
		if err != nil || s.taken {
			return h, err
		}
	}
	if h = readHead(s.in, s.firewall.cfg.Label, s.firewall.cfg.Ring.accepts.Load().Keys); h.err != nil {
		return h, h.err
	}
	if s.incoming {
		s.note(h)
	}
	return h, s.SetReadDeadline(deadline)
}

// note counts the stream if its head shows another cluster, or that only one side uses a key.
func (s *Stream) note(h head) {
	now := s.firewall.cfg.Ring.accepts.Load()
	switch sealed := h.kind == typeEncrypt; {
	case h.foreign, h.begin == 0 && s.firewall.cfg.Label != "":
		s.Reject(WrongCluster, h.cluster)
	case sealed && len(now.Secrets) == 0, !sealed && !now.TakesPlain:
		s.Reject(WrongKey, "")
	}
}
