package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Heartbeat implements pinstore.Store. It takes one command.
func (s *Store) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	what := fmt.Sprintf("heartbeat of %.80q", self.String())
	if err := checkIncarnation(self); err != nil {
		return nil, storeError(what, err)
	}
	if ttl > 0 {
		ttl = max(ttl, time.Millisecond)
	}
	args := make([]string, 0, 2+len(ask))
	args = append(args, textOf(self), strconv.FormatInt(ttl.Milliseconds(), 10))
	for _, at := range ask {
		args = append(args, textOf(at))
	}
	answers, err := s.runPlain(ctx, s.heartbeat, call{[]string{s.keys.heartbeats()}, args})
	if err != nil {
		return nil, storeError(what, err)
	}
	flags, err := answers[0].AsIntSlice()
	switch {
	case err != nil:
		return nil, storeError(what, err)
	case len(flags) != len(ask):
		return nil, storeError(what, errAnswer)
	}
	alive := make([]bool, len(ask))
	for i, flag := range flags {
		alive[i] = flag == 1
	}
	return alive, nil
}
