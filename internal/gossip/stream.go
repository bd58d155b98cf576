package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// Message types of memberlist's streams. memberlist also accepts user messages and
// compressed ones, which no agent sends.
const (
	typePing     = 0
	typeAck      = 2
	typePushPull = 6
	typeEncrypt  = 10 // memberlist without a key answers it with an error that names the key
	typeErr      = 13
	typeBusy     = 201 // of ours: the answer to a stream that had to make room, or that came too early
	typeLabel    = 244
)

// maxHead is more than the longest head that readHead reads.
const maxHead = 512

var (
	errHead = errors.New("gossip: unexpected stream header")
	errBusy = errors.New("gossip: the other side is busy with other streams")
)

// vettedConn reads and checks the message of a stream before memberlist reads it. That happens in
// the first Read at the latest, on the goroutine of the connection. Read and SetDeadline
// must not be called concurrently.
type vettedConn struct {
	net.Conn
	guard     *guard
	place     *place
	head      *bufio.Reader
	incoming  bool // another node opened the stream
	watchHead []byte
	deadline  time.Time
	vetted    bool
	watch     bool   // the head was watchHead, and is read
	message   []byte // which memberlist has not read yet
	nodes     int    // of the exchange in it
	err       error
}

// vet checks a stream that this node opened.
func (g *guard) vet(conn net.Conn) *vettedConn {
	return &vettedConn{Conn: conn, guard: g, place: g.places.outgoing(conn), head: bufio.NewReaderSize(conn, maxHead)}
}

// vetIncoming checks a stream that another node opened.
func (g *guard) vetIncoming(p *place) *vettedConn {
	return &vettedConn{
		Conn: p.conn, guard: g, place: p, head: bufio.NewReaderSize(p.conn, maxHead),
		incoming: true, watchHead: g.credentials.Load().head(typeWatch),
	}
}

func (c *vettedConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

func (c *vettedConn) Read(p []byte) (int, error) {
	c.check()
	switch {
	case c.err != nil:
		return 0, c.err
	case c.watch:
		return c.head.Read(p)
	case len(c.message) == 0:
		return 0, io.EOF
	}
	n := copy(p, c.message)
	if c.message = c.message[n:]; len(c.message) == 0 {
		c.message = nil
	}
	return n, nil
}

// Write counts what the other side takes. It explains the end of a stream that the other side
// closed to make room.
func (c *vettedConn) Write(p []byte) (done int, err error) {
	if !c.watch && len(p) > 0 && p[0] == typeEncrypt { // memberlist writes a label by itself, and a message at once
		c.guard.ring.CountSealed()
	}
	if !c.place.begins(writesMessage) {
		c.place.closeBusy()
		return 0, errEvicted
	}
	c.guard.places.sent(len(p))
	for err == nil && done < len(p) {
		var n int
		n, err = c.Conn.Write(p[done:min(len(p), done+pieceSize)])
		done += n
		c.place.moved.Add(int64(n))
	}
	if err != nil && !c.incoming {
		if c.check(); errors.Is(c.err, errBusy) {
			err = errBusy
		}
	}
	return done, err
}

// check waits for the message and checks it, once.
func (c *vettedConn) check() {
	if c.vetted {
		return
	}
	c.vetted = true
	var h head
	if h, c.err = c.readHead(); c.err == nil && !c.watch {
		c.message, c.err = c.read(h)
	}
	if errors.Is(c.err, errHead) || c.incoming && errors.Is(c.err, os.ErrDeadlineExceeded) {
		c.guard.dropped.Add(1)
	}
}

func (c *vettedConn) readHead() (h head, err error) {
	deadline := c.deadline
	if !c.incoming {
		c.place.until = deadline
	} else {
		if err := c.SetReadDeadline(time.Now().Add(c.guard.headTimeout)); err != nil {
			return h, err
		}
		deadline = c.place.until
		if err := c.answerHello(); err != nil {
			return h, err
		}
	}
	if c.watch = c.discardWatchHead(); !c.watch {
		if h = readHead(c.head, c.guard.label, c.guard.ring.Now().Keys); h.err != nil {
			return h, h.err
		}
		if c.incoming {
			c.guard.noteHead(h, c.RemoteAddr())
		}
	}
	return h, c.SetReadDeadline(deadline)
}

// discardWatchHead reads the head of a watch stream, and nothing of any other stream.
func (c *vettedConn) discardWatchHead() bool {
	h := &head{r: c.head}
	for _, b := range c.watchHead {
		if h.byte() != b || h.err != nil {
			return false
		}
	}
	_, _ = c.head.Discard(h.at) // they are buffered
	return h.at > 0
}

// head is the head of a stream, which it peeks. After an error it reads zeroes.
type head struct {
	r   *bufio.Reader
	at  int // its length so far
	err error

	kind  byte
	begin int  // of the message, behind the label
	only  bool // memberlist needs no more than the head to reject the stream

	foreign bool   // it is of another cluster
	cluster string // of that name

	bytes int // the most that may follow, all of which follow if the message is encrypted
	nodes int // of an exchange
	state int // its bytes
}

// readHead rejects a stream if no agent sends such a head: of a message without a bound, or
// with a larger one than any agent's. memberlist would allocate a million nodes, or unpack or
// keep 20 MiB and more, for an unauthenticated sender.
func readHead(r *bufio.Reader, label string, keys firewall.Keys) head {
	h := head{r: r}
	if h.kind = h.byte(); h.kind == typeLabel { // an answer has none
		of := string(h.next(int(h.byte())))
		if of != label {
			h.only, h.cluster, h.foreign = true, of, true
			return h
		}
		h.begin = h.at
		h.kind = h.byte()
	}
	switch {
	case h.kind == typeBusy && h.err == nil:
		h.err = errBusy
	case h.kind == typeEncrypt && len(keys.Secrets) > 0:
		h.sealed()
	case h.kind == typePushPull && keys.TakesPlain:
		h.pushPull()
	case h.kind == typePing, h.kind == typeAck, h.kind == typeErr:
		h.only, h.bytes = !keys.TakesPlain, maxSmall
	case h.kind == typePushPull, h.kind == typeEncrypt:
		h.only = true
	default:
		h.reject()
	}
	return h
}

// sealed reads the length of an encrypted message.
func (h *head) sealed() {
	n := binary.BigEndian.Uint32(h.next(4))
	if n > readBudget {
		h.reject()
	}
	h.bytes = int(n)
}

func (h *head) reject() {
	if h.err == nil {
		h.err = errHead
	}
}

func (h *head) next(n int) []byte {
	if h.err == nil {
		var b []byte
		if b, h.err = h.r.Peek(h.at + n); h.err == nil {
			h.at += n
			return b[h.at-n:]
		}
	}
	return make([]byte, n)
}

func (h *head) byte() byte { return h.next(1)[0] }

// pushPull reads a msgpack map. No key may be repeated: which of its values would memberlist
// take?
func (h *head) pushPull() {
	m := h.byte()
	if m < 0x80 || m > 0x83 {
		h.reject()
	}
	seen := make(map[string]bool)
	for range m & 0x0f {
		if h.err != nil {
			return
		}
		key := h.key()
		if seen[key] {
			h.reject()
		}
		switch seen[key] = true; key {
		case "Nodes":
			h.nodes = h.atMost(2 * lease.MaxNodes) // it also has nodes that died recently
		case "UserStateLen":
			h.state = h.atMost(lease.MaxMessageBytes)
		case "Join":
			if b := h.byte(); b != 0xc2 && b != 0xc3 {
				h.reject()
			}
		default:
			h.reject()
		}
	}
	h.bytes = min(readBudget, h.nodes*maxNodeBytes+h.state)
}

// key reads a string of at most 31 bytes.
func (h *head) key() string {
	b := h.byte()
	if b>>5 != 0xa0>>5 {
		h.reject()
	}
	return string(h.next(int(b & 0x1f)))
}

// atMost reads an integer of any width. It may take a negative integer of one or two
// bytes for a small number; memberlist rejects such an integer itself.
func (h *head) atMost(limit uint64) int {
	b := h.byte()
	if b < 0x80 {
		return int(b)
	}
	if b < 0xcc || b > 0xd3 {
		h.reject()
		return 0
	}
	var wide [8]byte
	n := 1 << (b & 3) // 0xcc to 0xcf are unsigned, 0xd0 to 0xd3 signed
	copy(wide[8-n:], h.next(n))
	v := binary.BigEndian.Uint64(wide[:])
	if v > limit {
		h.reject()
		return 0
	}
	return int(v)
}
