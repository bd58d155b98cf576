//go:build race

package clusterhttp

const (
	underRace   = true
	wantedCrowd = 300
)
