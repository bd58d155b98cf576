//go:build !race

package clusterhttp

const (
	underRace = false
	crowd     = 10_000 // crowd is how many clients follow the events in TestCrowd.
)
