//go:build !race

package clusterhttp

const (
	underRace   = false
	wantedCrowd = 3_000
)
