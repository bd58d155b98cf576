package gossip

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A node says hello on each stream that it opens to exchange states, before memberlist
// does. So it knows early why the two should not: other cluster names or keys, another
// cluster of the same name, or the node itself.
//
//	caller: label, typeHello, version, whether it has a key, number, proof
//	callee: verdict; if it is welcome: handle, number of founders, founders, proof
//
// The proof of the caller shows that it has the key. It may be a recorded one: it earns
// no more than the answer. The proof of the callee covers the number of the caller.

// typeHello is the first byte of a hello, after the label. memberlist has no message of that type.
const typeHello = 202

const (
	helloVersion = 1
	helloSize    = 1 + 1 + numberSize + sha256.Size // after typeHello

	handleSize = 8
)

// The verdicts. typeBusy is one, too.
const (
	welcome    = 1
	otherName  = 2 // of the cluster
	otherKey   = 3
	needsKey   = 4 // the callee has a key, the caller has none
	needsNoKey = 5
	otherHello = 6 // version
)

// Roles of the two sides, besides those of a watch stream.
const (
	roleCaller = 'c'
	roleCallee = 'e'
)

// Peer is the node that answers at an address.
type Peer struct {
	Node    lease.Handle // 0 = it is just starting
	Cluster lease.ClusterID
}

// ErrHungUp means that something accepted the connection and closed it without a byte.
var ErrHungUp = errors.New("it accepted the connection and closed it without an answer, as a proxy or load balancer does whose target is away, or a node that stops")

// ErrNoNode means that something else than a node answered.
var ErrNoNode = errors.New("what answers there is no roost node")

var errHello = errors.New("gossip: rejected a hello")

// hello says hello, and returns who answers.
func (g *guard) hello(c *vettedConn, until time.Time) (p Peer, err error) {
	if err := c.Conn.SetDeadline(until); err != nil {
		return p, err
	}
	creds := g.credentials.Load()
	var number [numberSize]byte
	_, _ = rand.Read(number[:]) // never fails
	var keyed byte
	if !creds.sendsPlain {
		keyed = 1
	}
	m := append(creds.head(typeHello), helloVersion, keyed)
	m = append(append(m, number[:]...), creds.mac(creds.keys[0], roleCaller, number[:])...)
	_, err = c.Conn.Write(m)
	if err != nil {
		return p, withoutAnswer(err)
	}
	verdict, err := c.head.ReadByte()
	if err != nil {
		return p, withoutAnswer(err)
	}
	if err = readVerdict(verdict, creds.label); err != nil {
		return p, err
	}
	if p, err = creds.readPeer(c.head, number[:]); err != nil {
		return p, withoutAnswer(err)
	}
	return p, nil
}

// withoutAnswer translates the error of a connection that the other side had accepted.
func withoutAnswer(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrUnfinished
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return ErrHungUp
		}
	}
	return err
}

// readVerdict returns what a verdict means to the caller.
func readVerdict(verdict byte, label string) error {
	switch verdict {
	case welcome:
		return nil
	case otherName:
		return fmt.Errorf("%w: this node's is %q", ErrCluster, label)
	case otherKey:
		return ErrKey
	case needsKey:
		return fmt.Errorf("%w: it uses a key, this node has none", ErrKey)
	case needsNoKey:
		return fmt.Errorf("%w: it uses no key, this node does", ErrKey)
	case otherHello:
		return fmt.Errorf("%w: its release is too old or too new", ErrNoNode)
	case typeBusy:
		return ErrUnfinished
	default:
		return ErrNoNode
	}
}

// readPeer reads what the callee says after its welcome.
func (c *credentials) readPeer(r io.Reader, number []byte) (p Peer, err error) {
	head := make([]byte, handleSize+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return p, err
	}
	founders := int(head[handleSize])
	if founders > lease.MaxFounders {
		return p, ErrNoNode
	}
	rest := make([]byte, founders*handleSize+sha256.Size)
	if _, err := io.ReadFull(r, rest); err != nil {
		return p, err
	}
	said := append(head, rest[:founders*handleSize]...)
	proven := func(key []byte) bool {
		return hmac.Equal(rest[founders*handleSize:], c.mac(key, roleCallee, number, said))
	}
	if !slices.ContainsFunc(c.keys, proven) {
		return p, ErrKey
	}
	p.Node = lease.Handle(binary.BigEndian.Uint64(head))
	for i := range founders {
		p.Cluster = append(p.Cluster, lease.Handle(binary.BigEndian.Uint64(rest[i*handleSize:])))
	}
	return p, nil
}

// answerHello answers the hello of an incoming stream. It reads nothing of a stream that begins otherwise.
func (c *vettedConn) answerHello() error {
	h := &head{r: c.head}
	of, kind := "", h.byte()
	if kind == typeLabel {
		of = string(h.next(int(h.byte())))
		kind = h.byte()
	}
	if h.err != nil || kind != typeHello {
		return h.err
	}
	_, _ = c.head.Discard(h.at) // they are buffered
	var m [helloSize]byte
	if _, err := io.ReadFull(c.head, m[:]); err != nil {
		return err
	}
	answer := c.guard.answer(of, m[:])
	if err := c.SetWriteDeadline(time.Now().Add(c.guard.headTimeout)); err != nil {
		return err
	}
	if _, err := c.Conn.Write(answer); err != nil { // it is no message, so it does not count as one
		return err
	}
	if answer[0] != welcome {
		c.noteHello(answer[0], of)
		return errHello
	}
	return c.SetReadDeadline(time.Now().Add(c.guard.headTimeout)) // the caller goes on at once, or not at all
}

// noteHello counts a hello that was rejected.
func (c *vettedConn) noteHello(verdict byte, label string) {
	switch verdict {
	case otherName:
		c.guard.rejections.note(WrongCluster, TCP, addrPort(c.RemoteAddr()), label)
	case otherKey, needsKey, needsNoKey:
		c.guard.rejections.note(WrongKey, TCP, addrPort(c.RemoteAddr()), "")
	}
}

// answer returns the answer to a hello.
func (g *guard) answer(label string, m []byte) []byte {
	var self Peer
	if g.self != nil {
		self = g.self()
	}
	creds := g.credentials.Load()
	answer := []byte{g.welcomes(creds, label, m)}
	switch {
	case answer[0] != welcome:
		return answer
	case g.self != nil && self.Node == 0:
		return []byte{typeBusy}
	}
	said := append(binary.BigEndian.AppendUint64(nil, uint64(self.Node)), byte(len(self.Cluster)))
	for _, founder := range self.Cluster {
		said = binary.BigEndian.AppendUint64(said, uint64(founder))
	}
	return append(append(answer, said...), creds.mac(creds.keys[0], roleCallee, m[2:2+numberSize], said)...)
}

// welcomes decides about a hello.
func (g *guard) welcomes(creds *credentials, label string, m []byte) byte {
	number, proof := m[2:2+numberSize], m[2+numberSize:]
	proven := func(key []byte) bool { return hmac.Equal(proof, creds.mac(key, roleCaller, number)) }
	switch keyed := m[1] == 1; {
	case label != g.label:
		return otherName
	case m[0] != helloVersion:
		return otherHello
	case keyed && len(creds.secrets) == 0:
		return needsNoKey
	case !keyed && !creds.takesPlain:
		return needsKey
	case !slices.ContainsFunc(creds.keys, proven):
		return otherKey
	default:
		return welcome
	}
}
