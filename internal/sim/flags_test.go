package sim_test

import "flag"

var (
	changes = flag.Int("changes", 0, "random changes in TestHandover; 0 = a few hundred")
	long    = flag.Bool("long", false, "larger fleets in TestHandoverGap, a whole day in TestRecordedTraffic, 1,000 nodes in TestScale")
)
