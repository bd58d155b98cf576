package placementtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/roost-cluster/roost/placement"
)

// answer is the expected result for an input.
type answer struct {
	input
	owners []int
	rank   []int // ranked nodes for partition 0
}

func (in input) ask(one placement.Strategy) (answer, error) {
	nodes := in.given()
	owners, err := in.assign(one, nodes)
	a := answer{input: in, owners: owners}
	if owners != nil {
		a.rank = one.Rank(nodes, 0, len(nodes))
	}
	return a, err
}

// concurrent calls a single instance from many goroutines, each with its own fleet. The results must be the
// same as without concurrency.
func (s *suite) concurrent() error {
	var want []answer
	for _, in := range s.cases {
		a, err := in.ask(s.fresh())
		if err != nil {
			return err
		}
		if a.owners != nil && in.partitions < placement.MaxPartitions {
			want = append(want, a)
		}
	}
	shared := s.fresh()
	problems := make([]error, len(want))
	var all sync.WaitGroup
	for k, a := range want {
		all.Go(func() {
			for range rounds {
				err := guard(func() error { return a.repeat(shared) })
				if err != nil {
					problems[k] = fmt.Errorf("%w, when other goroutines ask the same instance: a strategy must be safe for concurrent use", err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	return nil
}

func (a answer) repeat(shared placement.Strategy) error {
	got, err := a.ask(shared)
	if err != nil {
		return err
	}
	if err := a.compare(a.owners, got.owners); err != nil {
		return err
	}
	if !slices.Equal(got.rank, a.rank) {
		return fmt.Errorf("%v: Rank of partition 0 is %v once and %v once", a.input, a.rank, got.rank)
	}
	return nil
}
