package placementtest

import (
	"fmt"
	"strings"

	"github.com/roost-cluster/roost/placement"
)

// explain checks a strategy that is a [placement.Explainer].
func (s *suite) explain() error {
	if _, ok := s.fresh().(placement.Explainer); !ok {
		return nil
	}
	return s.each(func(in input, one placement.Strategy, _ []placement.Node, owners []int) error {
		for _, p := range in.some() {
			why := one.(placement.Explainer).Explain(in.given(), p, owners[p])
			if strings.TrimSpace(why) == "" || strings.Contains(why, "\n") {
				return fmt.Errorf("%v: Explain says %q of partition %d; it should be a sentence", in, why, p)
			}
			if again := s.fresh().(placement.Explainer).Explain(in.given(), p, owners[p]); again != why {
				return fmt.Errorf("%v: Explain says of partition %d once %q and once %q", in, p, why, again)
			}
		}
		return nil
	})
}
