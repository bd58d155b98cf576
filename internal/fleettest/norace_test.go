//go:build !race

package fleettest

const underRace = false
