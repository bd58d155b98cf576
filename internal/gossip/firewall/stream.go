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

// ErrBusy means that the other side closed a stream to make room for other streams.
var ErrBusy = errors.New("gossip: the other side is busy with other streams")

// Stream is a TCP connection between this node and another node. Its message is read and checked before
// memberlist gets it. The message is checked in the first Read at the latest, on the goroutine of the
// connection. Read and SetDeadline must not be called concurrently.
//
// While a function of Config uses a stream, Read returns data from the other side without checking it. Data
// written to Conn is not considered a message, so the firewall can still tell the other side afterwards that
// this node is busy.
type Stream struct {
	net.Conn
	firewall *Firewall
	place    *place
	in       *bufio.Reader
	incoming bool // another node opened the stream
	ours     bool // a function of Config is using the stream
	taken    bool // Config.Incoming has taken the stream over
	looked   int  // number of bytes that Head peeked
	deadline time.Time
	checked  bool
	message  []byte // the part that memberlist has not read yet
	nodes    int    // number of nodes of the exchange in the message
	err      error
}

func (f *Firewall) stream(p *place, incoming bool) *Stream {
	return &Stream{Conn: p.conn, firewall: f, place: p, in: bufio.NewReaderSize(p.conn, maxHead), incoming: incoming}
}

// Head peeks at the next bytes of the stream: the label, if there is one, and the message type after it. It
// blocks until both have arrived.
func (s *Stream) Head() (label string, kind byte, err error) {
	h := head{r: s.in}
	if kind = h.byte(); kind == typeLabel {
		label = string(h.next(int(h.byte())))
		kind = h.byte()
	}
	s.looked = h.at
	return label, kind, h.err
}

// Skip consumes the bytes at which Head peeked last.
func (s *Stream) Skip() { _, _ = s.in.Discard(s.looked) } // the bytes are buffered

// Buffered returns how many bytes have been received but not read.
func (s *Stream) Buffered() int { return s.in.Buffered() }

// Host returns the address that identifies the other host: an IPv4 address or an IPv6 network.
func (s *Stream) Host() netip.Addr { return s.place.from }

// Reject counts the stream as rejected. For WrongCluster, cluster is the name that the other side sent.
func (s *Stream) Reject(why Why, cluster string) {
	s.firewall.cfg.Rejections.note(why, TCP, addrPort(s.RemoteAddr()), cluster)
}

// Rest releases the stream's slot, its memory budget and its buffer. After Rest, only the stream's Conn may
// be used.
func (s *Stream) Rest() {
	s.place.leave()
	s.in = nil
}

// lend lets a function of Config use the stream.
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

// Read reads from the message, after the message is complete and has been checked.
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

// Write writes to the other side and counts the bytes that it has accepted. If the other side closed the
// stream to make room, Write returns ErrBusy.
func (s *Stream) Write(p []byte) (done int, err error) {
	if !s.ours && len(p) > 0 && p[0] == typeEncrypt { // memberlist writes a label separately, and a message in one call
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

// check waits for the message and checks it. Later calls do nothing.
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

// note counts the stream as rejected if its head shows that it belongs to another cluster, or that only one
// side uses a key.
func (s *Stream) note(h head) {
	now := s.firewall.cfg.Ring.accepts.Load()
	switch sealed := h.kind == typeEncrypt; {
	case h.foreign, h.begin == 0 && s.firewall.cfg.Label != "":
		s.Reject(WrongCluster, h.cluster)
	case sealed && len(now.Secrets) == 0, !sealed && !now.TakesPlain:
		s.Reject(WrongKey, "")
	}
}
