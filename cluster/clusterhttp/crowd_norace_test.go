//go:build !race

package clusterhttp

const (
	underRace   = false
	wantedCrowd = 2_000
)
