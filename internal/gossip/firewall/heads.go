package firewall

// The rule for the heads of streams. In v0.5.1, memberlist allocates as many nodes as the head of an exchange announces,
// and panics on a negative number (readRemoteState): https://github.com/hashicorp/memberlist/pull/357
// It allocates what a user message announces (readUserMsg): https://github.com/hashicorp/memberlist/issues/360
// And it decompresses without a bound (decompressBuffer): https://github.com/hashicorp/memberlist/issues/362
// So some bytes of an unauthenticated sender end the process, and so does the answer to a stream that such a sender made
// memberlist open.
//
// The rule can go when memberlist takes its bounds from settings. v0.7.0 has bounds, but a million nodes are 109 MB, and a
// compressed message may have 40 MiB.

import (
	"bufio"
	"encoding/binary"
	"errors"

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
	Busy         = 201 // of ours: the answer to a stream that had to make room, or that came too early
	typeLabel    = 244
)

// maxHead is more than the longest head that readHead reads.
const maxHead = 512

// ErrHead means that no agent sends what a stream begins with.
var ErrHead = errors.New("gossip: unexpected stream header")

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
func readHead(r *bufio.Reader, label string, keys Keys) head {
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
	case h.kind == Busy && h.err == nil:
		h.err = ErrBusy
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
		h.err = ErrHead
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
