package gossip

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// When memberlist opens a stream to exchange states, the node first sends a hello. So the node finds out
// early if the two nodes must not exchange states. The possible reasons are different cluster names or keys,
// another cluster with the same name, and a stream that leads back to the node itself.
//
//	caller: label, typeHello, frame: version, whether it has a key, number, proof
//	callee: verdict; if it is welcome, frame: what it says (handle, founders), proof
//
// The caller's proof shows that the caller has the key. An attacker who replays the proof of a caller only
// gets the answer. The callee's proof covers the caller's number and the bytes of the answer.

// typeHello is the first byte of a hello, after the label. memberlist does not use this message type.
const typeHello = 202

const helloVersion = 1

// The verdicts. firewall.Busy is also a verdict.
const (
	welcome    = 1
	otherName  = 2 // the cluster names differ
	otherKey   = 3
	needsKey   = 4 // the callee has a key, the caller has none
	needsNoKey = 5
	otherHello = 6 // the versions differ
)

// Roles of the two sides of a hello, in addition to the roles of a watch stream.
const (
	roleCaller = 'c'
	roleCallee = 'e'
)

// Peer is the node that answers at an address.
type Peer struct {
	Node    lease.Handle // 0 = the node is just starting
	Cluster lease.ClusterID
}

// ErrHungUp means that the other side accepted the connection and closed it without sending a byte.
var ErrHungUp = errors.New("it accepted the connection and closed it without an answer, as a proxy or load balancer does whose target is away, or a node that stops")

// ErrNoNode means that something other than a node answered.
var ErrNoNode = errors.New("what answers there is no roost node")

var errHello = errors.New("gossip: rejected a hello")

// hello sends a hello, and returns the node that answers.
func (g *greeter) hello(s *firewall.Stream, until time.Time) (p Peer, err error) {
	if err := s.Conn.SetDeadline(until); err != nil {
		return p, err
	}
	creds := g.credentials.Load()
	var number [numberSize]byte
	_, _ = rand.Read(number[:]) // never fails
	if _, err = s.Conn.Write(creds.hello(number[:])); err != nil {
		return p, withoutAnswer(err)
	}
	var verdict [1]byte
	if _, err = io.ReadFull(s, verdict[:]); err != nil {
		return p, withoutAnswer(err)
	}
	if err = readVerdict(verdict[0], creds.label); err != nil {
		return p, err
	}
	if p, err = creds.readPeer(s, number[:]); err != nil {
		return p, withoutAnswer(err)
	}
	return p, nil
}

// hello returns the encoded hello of a caller.
func (c *credentials) hello(number []byte) []byte {
	return appendFrame(c.head(typeHello), 4, func(w *wire.Writer) {
		w.Uint(helloVersion)
		w.Bool(!c.SendsPlain)
		w.Bytes(number)
		w.Bytes(c.mac(c.keys[0], roleCaller, number))
	})
}

// withoutAnswer translates the error of a connection that the other side accepted but did not answer.
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

// readVerdict returns the error that a verdict means for the caller, or nil if the caller is welcome.
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
	case firewall.Busy:
		return ErrUnfinished
	default:
		return ErrNoNode
	}
}

// readPeer reads the data that the callee sends after the verdict welcome.
func (c *credentials) readPeer(r io.Reader, number []byte) (p Peer, err error) {
	var said, proof []byte
	err = readFrame(r, 2, ErrNoNode, func(r *wire.Reader) { said, proof = r.Bytes(maxFrame), r.Fixed(sha256.Size) })
	if err != nil {
		return p, err
	}
	proven := func(key []byte) bool { return hmac.Equal(proof, c.mac(key, roleCallee, number, said)) }
	if !slices.ContainsFunc(c.keys, proven) {
		return p, ErrKey
	}
	err = wire.Read(said, func(r *wire.Reader) {
		r.Fields(2, func() {
			p.Node = lease.Handle(r.Handle())
			r.List(lease.MaxFounders, func() { p.Cluster = append(p.Cluster, lease.Handle(r.Handle())) })
		})
	})
	if err != nil {
		return Peer{}, ErrNoNode
	}
	return p, nil
}

// appendPeer appends the data that the callee sends after the verdict welcome.
func (c *credentials) appendPeer(b []byte, p Peer, number []byte) []byte {
	said := wire.Append(nil, func(w *wire.Writer) {
		w.Array(2)
		w.Handle(uint64(p.Node))
		w.Array(len(p.Cluster))
		for _, founder := range p.Cluster {
			w.Handle(uint64(founder))
		}
	})
	return appendFrame(b, 2, func(w *wire.Writer) {
		w.Bytes(said)
		w.Bytes(c.mac(c.keys[0], roleCallee, number, said))
	})
}

// answerHello answers the hello of an incoming stream.
func (g *greeter) answerHello(s *firewall.Stream, label string) error {
	s.Skip()
	said := hello{label: label}
	if err := readFrame(s, 1, firewall.ErrHead, said.read); err != nil {
		return err
	}
	answer := g.answer(&said)
	if err := s.SetWriteDeadline(time.Now().Add(g.headTimeout)); err != nil {
		return err
	}
	if _, err := s.Conn.Write(answer); err != nil { // this is not a message, so it is not counted as one
		return err
	}
	switch answer[0] {
	case welcome:
		return s.SetReadDeadline(time.Now().Add(g.headTimeout)) // the caller continues immediately or not at all
	case otherName:
		s.Reject(WrongCluster, label)
	case otherKey, needsKey, needsNoKey:
		s.Reject(WrongKey, "")
	}
	return errHello
}

// hello contains the fields of a caller's hello.
type hello struct {
	label         string
	version       uint64
	keyed         bool
	number, proof []byte
}

func (h *hello) read(r *wire.Reader) {
	if h.version = r.Uint(math.MaxUint64); h.version == helloVersion {
		h.keyed, h.number, h.proof = r.Bool(), r.Fixed(numberSize), r.Fixed(sha256.Size)
	}
}

// answer returns the encoded answer to a hello.
func (g *greeter) answer(h *hello) []byte {
	var self Peer
	if g.self != nil {
		self = g.self()
	}
	creds := g.credentials.Load()
	switch verdict := g.welcomes(creds, h); {
	case verdict != welcome:
		return []byte{verdict}
	case g.self != nil && self.Node == 0:
		return []byte{firewall.Busy}
	}
	return creds.appendPeer([]byte{welcome}, self, h.number)
}

// welcomes returns the verdict on a hello.
func (g *greeter) welcomes(creds *credentials, h *hello) byte {
	proven := func(key []byte) bool { return hmac.Equal(h.proof, creds.mac(key, roleCaller, h.number)) }
	switch {
	case h.label != g.label:
		return otherName
	case h.version != helloVersion:
		return otherHello
	case h.keyed && len(creds.Secrets) == 0:
		return needsNoKey
	case !h.keyed && !creds.TakesPlain:
		return needsKey
	case !slices.ContainsFunc(creds.keys, proven):
		return otherKey
	default:
		return welcome
	}
}
