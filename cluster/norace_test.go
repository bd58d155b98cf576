//go:build !race

package cluster_test

import "time"

const (
	underRace = false
	restFor   = 10 * time.Minute
	pauses    = 20
)
