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

// Message types of memberlist's streams. It also knows user messages and
// compressed ones, which nobody here sends.
const (
	typePing     = 0
	typeAck      = 2
	typePushPull = 6
	typeEncrypt  = 10 // passes: memberlist's answer tells the sender that keys differ
	typeErr      = 13
	typeLabel    = 244
)

// maxHead is more than the longest head that vetHead reads.
const maxHead = 512

var errHead = errors.New("gossip: stream refused: no node of ours begins like that")

// vettedConn reads the head of a stream before memberlist may. It does so in
// the first Read, since that is on a goroutine of the connection's own. Read
// and SetDeadline are for one goroutine at a time.
type vettedConn struct {
	net.Conn
	head     *bufio.Reader
	plain    bool          // what the head says can be read, and must be harmless
	patience time.Duration // until the head is there; 0 = until the deadline
	dropped  *atomic.Uint64
	deadline time.Time
	vetted   bool
	err      error
}

func (g *guard) vet(conn net.Conn, patience time.Duration) net.Conn {
	return &vettedConn{
		Conn: conn, head: bufio.NewReaderSize(conn, maxHead),
		plain: g.plain, patience: patience, dropped: &g.dropped,
	}
}

func (c *vettedConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

func (c *vettedConn) Read(p []byte) (int, error) {
	if !c.vetted {
		c.vetted, c.err = true, c.vet()
		late := c.patience > 0 && errors.Is(c.err, os.ErrDeadlineExceeded)
		if late || errors.Is(c.err, errHead) {
			c.dropped.Add(1)
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.head.Read(p)
}

func (c *vettedConn) vet() error {
	if c.patience > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
			return err
		}
		defer func() { _ = c.SetReadDeadline(c.deadline) }()
	}
	if c.plain {
		return vetHead(c.head)
	}
	_, err := c.head.Peek(1)
	return err
}

// vetHead refuses a stream whose head promises what no node of ours sends.
// memberlist makes room for a million nodes, or unpacks 40 MiB, on the word of a
// stranger's hundred bytes.
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
		h.refuse()
	}
	return h.err
}

// head looks ahead in a stream. After an error it reads zeroes.
type head struct {
	r   *bufio.Reader
	at  int
	err error
}

func (h *head) refuse() {
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

// pushPull reads a msgpack map. Every value of a key that comes twice is held
// to its bound, so it does not matter which one memberlist takes.
func (h *head) pushPull() {
	m := h.byte()
	if m < 0x80 || m > 0x83 {
		h.refuse()
	}
	for range m & 0x0f {
		if h.err != nil {
			return
		}
		switch h.key() {
		case "Nodes":
			h.atMost(2 * maxMembers) // it also holds nodes that died lately
		case "UserStateLen":
			h.atMost(lease.MaxMessageBytes)
		case "Join":
			if b := h.byte(); b != 0xc2 && b != 0xc3 {
				h.refuse()
			}
		default:
			h.refuse()
		}
	}
}

// key reads a string of at most 31 bytes.
func (h *head) key() string {
	b := h.byte()
	if b>>5 != 0xa0>>5 {
		h.refuse()
	}
	return string(h.bytes(int(b & 0x1f)))
}

// atMost reads an integer of any width. A negative one of two bytes or less may
// pass for a small number; memberlist refuses those itself.
func (h *head) atMost(limit uint64) {
	b := h.byte()
	if b < 0x80 {
		return
	}
	if b < 0xcc || b > 0xd3 {
		h.refuse()
		return
	}
	var wide [8]byte
	n := 1 << (b & 3) // 0xcc to 0xcf are unsigned, 0xd0 to 0xd3 signed
	copy(wide[8-n:], h.bytes(n))
	if binary.BigEndian.Uint64(wide[:]) > limit {
		h.refuse()
	}
}
