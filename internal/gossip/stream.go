package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Message types of memberlist's streams. memberlist also accepts user messages and
// compressed ones, which no agent sends.
const (
	typePing     = 0
	typeAck      = 2
	typePushPull = 6
	typeEncrypt  = 10 // passes: memberlist answers it with an error that names the key
	typeErr      = 13
	typeLabel    = 244
)

// maxHead is more than the longest head that vetHead reads.
const maxHead = 512

var errHead = errors.New("gossip: unexpected stream header")

// vettedConn checks the head of a stream before memberlist reads it. The check runs in
// the first Read at the latest, on the goroutine of the connection. Read and SetDeadline
// must not be called concurrently.
type vettedConn struct {
	net.Conn
	head        *bufio.Reader
	plain       bool          // the head is readable, and must be harmless
	headTimeout time.Duration // until the head has arrived; 0 = until the deadline
	watchHead   []byte        // of an incoming watch stream; nil = there is none
	dropped     *atomic.Uint64
	deadline    time.Time
	vetted      bool
	watch       bool // the head was watchHead, and is read
	err         error
}

// vet checks the head of a stream that this node opened.
func (g *guard) vet(conn net.Conn) *vettedConn {
	return &vettedConn{
		Conn: conn, head: bufio.NewReaderSize(conn, maxHead),
		plain: g.plain, dropped: &g.dropped,
	}
}

// vetIncoming checks the head of a stream that another node opened.
func (g *guard) vetIncoming(conn net.Conn) *vettedConn {
	c := g.vet(conn)
	c.headTimeout, c.watchHead = g.headTimeout, g.credentials.head()
	return c
}

func (c *vettedConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

func (c *vettedConn) Read(p []byte) (int, error) {
	if c.check(); c.err != nil {
		return 0, c.err
	}
	return c.head.Read(p)
}

// check waits for the head and checks it, once.
func (c *vettedConn) check() {
	if c.vetted {
		return
	}
	c.vetted, c.err = true, c.vet()
	late := c.headTimeout > 0 && errors.Is(c.err, os.ErrDeadlineExceeded)
	if late || errors.Is(c.err, errHead) {
		c.dropped.Add(1)
	}
}

func (c *vettedConn) vet() error {
	if c.headTimeout > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.headTimeout)); err != nil {
			return err
		}
		defer func() { _ = c.SetReadDeadline(c.deadline) }()
	}
	if c.watch = c.discardWatchHead(); c.watch {
		return nil
	}
	if c.plain {
		return vetHead(c.head)
	}
	_, err := c.head.Peek(1)
	return err
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

// vetHead rejects a stream if no agent sends such a head. memberlist would allocate a
// million nodes, or unpack 40 MiB, for a hundred bytes from an unauthenticated sender.
func vetHead(r *bufio.Reader) error {
	h := &head{r: r}
	kind := h.byte()
	if kind == typeLabel {
		h.bytes(int(h.byte()))
		kind = h.byte()
	}
	switch kind {
	case typePing, typeAck, typeEncrypt, typeErr:
	case typePushPull:
		h.pushPull()
	default:
		h.reject()
	}
	return h.err
}

// head peeks into a stream. After an error it reads zeroes.
type head struct {
	r   *bufio.Reader
	at  int
	err error
}

func (h *head) reject() {
	if h.err == nil {
		h.err = errHead
	}
}

func (h *head) bytes(n int) []byte {
	if h.err == nil {
		var b []byte
		if b, h.err = h.r.Peek(h.at + n); h.err == nil {
			h.at += n
			return b[h.at-n:]
		}
	}
	return make([]byte, n)
}

func (h *head) byte() byte { return h.bytes(1)[0] }

// pushPull reads a msgpack map. Each value of a repeated key must be within bounds, so
// it does not matter which value memberlist takes.
func (h *head) pushPull() {
	m := h.byte()
	if m < 0x80 || m > 0x83 {
		h.reject()
	}
	for range m & 0x0f {
		if h.err != nil {
			return
		}
		switch h.key() {
		case "Nodes":
			h.atMost(2 * maxMembers) // it also has nodes that died recently
		case "UserStateLen":
			h.atMost(lease.MaxMessageBytes)
		case "Join":
			if b := h.byte(); b != 0xc2 && b != 0xc3 {
				h.reject()
			}
		default:
			h.reject()
		}
	}
}

// key reads a string of at most 31 bytes.
func (h *head) key() string {
	b := h.byte()
	if b>>5 != 0xa0>>5 {
		h.reject()
	}
	return string(h.bytes(int(b & 0x1f)))
}

// atMost reads an integer of any width. It may take a negative integer of one or two
// bytes for a small number; memberlist rejects such an integer itself.
func (h *head) atMost(limit uint64) {
	b := h.byte()
	if b < 0x80 {
		return
	}
	if b < 0xcc || b > 0xd3 {
		h.reject()
		return
	}
	var wide [8]byte
	n := 1 << (b & 3) // 0xcc to 0xcf are unsigned, 0xd0 to 0xd3 signed
	copy(wide[8-n:], h.bytes(n))
	if binary.BigEndian.Uint64(wide[:]) > limit {
		h.reject()
	}
}
