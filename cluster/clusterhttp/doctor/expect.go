package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Expect compares the live members that an agent sees with the number that there should be.
func Expect(members, want int) Check {
	if members == want {
		return Check{Name: "expected", Finding: fmt.Sprintf("there are %s", plural(members, "member"))}
	}
	c := Check{
		"expected", Fail, fmt.Sprintf("%s, and not %d", plural(members, "member"), want), "nodes are missing: others own their partitions",
		"see which are missing: roost members lists the live ones, and below them those that were lost within 30 minutes; roost members --all asks every agent",
	}
	if members > want {
		c.Status, c.Means, c.Do = Warn, "there are nodes that should not be there", "see which these are with roost members, and stop them; or correct the number"
	}
	return c
}

// Add adds checks of another kind.
func (d *Diagnosis) Add(checks ...Check) {
	for _, c := range checks {
		d.Status = max(d.Status, c.Status)
	}
	d.Checks = append(d.Checks, checks...)
	slices.SortStableFunc(d.Checks, func(a, b Check) int { return cmp.Compare(b.Status, a.Status) })
}
