//go:build race

package cluster_test

import "time"

const (
	underRace = true
	restFor   = time.Minute // five times slower; make test also runs these without it
	pauses    = 4
)
