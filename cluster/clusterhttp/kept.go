package clusterhttp

import (
	"sync"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// body is an encoded answer. Clients that ask for the same share it.
type body struct {
	plain   []byte
	holders int // requests; guarded by requests.mu

	mu   sync.Mutex
	gzip []byte // nil: nobody has asked for it yet
}

// kept has the latest answers of a ring that grow with its table: without it, each client that does not read would cost a copy.
type kept struct {
	partitions shared[partitionsKey]
	owned      shared[ownedKey]
}

// partitionsKey has what /v1/partitions is made of.
type partitionsKey struct {
	table      *placement.Table
	version    uint64
	divergence int
	stale      bool
}

// ownedKey has what /v1/owned is made of. A node owns partitions by its state, or nothing once its own lease has expired.
type ownedKey struct {
	state *events.State
	owns  bool
}

// shared is one answer, and what it is made of.
type shared[K comparable] struct {
	mu   sync.Mutex
	of   K
	made time.Time
	body *body
}

// get returns the answer for a key. It makes one if the last is for another key, or older than
// maxAge. Other clients wait for it.
func (s *shared[K]) get(of K, maxAge time.Duration, answer func() any) (*body, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body != nil && s.of == of && (maxAge == 0 || time.Since(s.made) < maxAge) {
		return s.body, nil
	}
	plain, err := encoded(answer())
	if err != nil {
		return nil, err
	}
	s.of, s.made, s.body = of, time.Now(), &body{plain: plain}
	return s.body, nil
}

// answerOf makes the result of get the result of an endpoint.
func answerOf(b *body, err error) (any, *Problem) {
	if err != nil {
		return nil, internal(err)
	}
	return b, nil
}
