package sim_test

import "flag"

var (
	changes = flag.Int("changes", 0, "random changes in TestHandoff; 0 = a few hundred")
	long    = flag.Bool("long", false, "larger fleets, and for longer: make scale and make handoff do so")
)
