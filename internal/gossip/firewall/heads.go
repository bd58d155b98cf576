package firewall

// This is the rule for the heads of streams. memberlist v0.5.1 trusts the head of a stream:
//
//   - It allocates as many nodes as the head of an exchange announces, and panics on a negative number
//     (readRemoteState): https://github.com/hashicorp/memberlist/pull/357
//   - It allocates as many bytes as a user message announces (readUserMsg):
//     https://github.com/hashicorp/memberlist/issues/360
//   - It decompresses without a limit (decompressBuffer): https://github.com/hashicorp/memberlist/issues/362
//
// So an unauthenticated sender can end the process with a few bytes. The answer to a stream can do the same,
// if such a sender made memberlist open the stream.
//
// The rule can be removed when memberlist's limits are configurable. v0.7.0 has limits, but it still allows a
// million nodes, which use 109 MB, and compressed messages of 40 MiB.

import (
	"bufio"
	"encoding/binary"
	"errors"

	"github.com/roost-cluster/roost/lease"
)

// Message types of memberlist's streams. memberlist also accepts user messages and compressed messages, which
// agents do not send.
const (
	typePing     = 0
	typeAck      = 2
	typePushPull = 6
	typeEncrypt  = 10 // memberlist without a key answers it with an error that names the key
	typeErr      = 13
	Busy         = 201 // roost's own type: the answer to a stream that had to make room, or that came too early
	typeLabel    = 244
)

// maxHead is larger than the longest head that readHead reads.
const maxHead = 512

// ErrHead means that a stream begins with bytes that no agent sends.
var ErrHead = errors.New("gossip: unexpected stream header")

// head parses the head of a stream without consuming its bytes. After an error, all further bytes read as
// zero.
type head struct {
	r   *bufio.Reader
	at  int // length of the head so far
	err error

	kind  byte
	begin int  // start of the message, after the label
	only  bool // memberlist needs no more than the head to reject the stream

	foreign bool   // the stream belongs to another cluster
	cluster string // name of that cluster

	bytes int // maximum number of bytes that may follow; if the message is encrypted, exactly this number follows
	nodes int // number of nodes in an exchange
	state int // size of the state in an exchange
}

// readHead rejects a stream if no agent sends such a head, because its message has no size limit or is larger than any
// agent's message. For such a stream, even from an unauthenticated sender, memberlist would allocate a million nodes,
// or would decompress or keep more than 20 MiB.
func readHead(r *bufio.Reader, label string, keys Keys) head {
	h := head{r: r}
	if h.kind = h.byte(); h.kind == typeLabel { // an answer has no label
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

// pushPull reads a MessagePack map. It rejects repeated keys, because it is unclear which of the values
// memberlist would use.
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
			h.nodes = h.atMost(2 * lease.MaxNodes) // an exchange also contains nodes that died recently
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

// atMost reads an integer of any width. It may interpret a negative integer of one or two bytes as a small
// number, but memberlist rejects such integers itself.
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
