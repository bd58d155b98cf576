//go:build race

package clusterhttp

const (
	underRace = true
	crowd     = 1_000 // crowd is smaller here: the race detector is limited to 8,128 goroutines.
)
