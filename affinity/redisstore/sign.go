package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Sign implements affinity.Store. It takes one command.
func (s *Store) Sign(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	what := fmt.Sprintf("sign as %.80q", self.String())
	if err := checkLife(self); err != nil {
		return nil, fault(what, err)
	}
	if ttl > 0 {
		ttl = max(ttl, time.Millisecond)
	}
	args := make([]string, 0, 2+len(ask))
	args = append(args, lifeText(self), strconv.FormatInt(ttl.Milliseconds(), 10))
	for _, life := range ask {
		args = append(args, lifeText(life))
	}
	answers, err := s.runPlain(ctx, s.sign, call{[]string{s.keys.signed()}, args})
	if err != nil {
		return nil, fault(what, err)
	}
	flags, err := answers[0].AsIntSlice()
	switch {
	case err != nil:
		return nil, fault(what, err)
	case len(flags) != len(ask):
		return nil, fault(what, errAnswer)
	}
	signed := make([]bool, len(ask))
	for i, flag := range flags {
		signed[i] = flag == 1
	}
	return signed, nil
}
