//go:build !race

package affinity

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
)

// modelSize says when a world is explored.
type modelSize int

const (
	small  modelSize = iota
	medium           // not with -short
	large            // only with -long
)

// modelState is a state of a world, with the actions that lead to it. Goroutines cannot be copied, so each step builds
// the world again.
type modelState struct {
	trace  []modelAction
	key    string
	next   []modelAction
	broken string
}

// modelRest remembers, by the key of a world, which invariant the world breaks when it comes to rest.
type modelRest map[string]string

func (rest modelRest) after(l modelLimits, f modelFault, prepare, trace []modelAction) *modelState {
	w := newModelWorld(l, f, nil)
	for _, a := range slices.Concat(prepare, trace) {
		a.do(w)
	}
	knowledge := w.key()
	s := &modelState{trace: trace, key: knowledge + fmt.Sprint(w.left), broken: w.broken}
	if s.broken == "" {
		s.next = w.actions()
		known, ok := rest[knowledge]
		if !ok {
			known = w.rest()
			rest[knowledge] = known
		}
		s.broken = known
	}
	w.abandon()
	return s
}

// modelPrepare returns the actions before the exploration. If hosted is set, that process hosts the room.
func modelPrepare(hosted string) []modelAction {
	if hosted == "" {
		return nil
	}
	return []modelAction{{"hosts", func(w *modelWorld) {
		w.direct = true
		_, _ = w.at[hosted[0]-'a'].r.Host(context.Background(), modelRoom, Demand{})
		w.direct = false
	}}}
}

// exploreModel explores a world in which a process may already host the room.
func exploreModel(t *testing.T, l modelLimits, f modelFault, hosted string, states int) (r explore.Result[string]) {
	t.Helper()
	prepare := modelPrepare(hosted)
	synctest.Test(t, func(*testing.T) {
		rest := make(modelRest)
		m := explore.Model[*modelState, string]{
			Start: []*modelState{rest.after(l, f, prepare, nil)},
			Key:   func(s *modelState) string { return s.key },
			Next: func(s *modelState, visit func(string, *modelState)) {
				for _, a := range s.next {
					visit(a.what, rest.after(l, f, prepare, append(slices.Clip(s.trace), a)))
				}
			},
			MaxStates: states,
		}
		for _, name := range []string{
			oneHome, epochGrows, seenGrows, hostingGrows, homeStays, oneHeir, deadNoHeir, readIsLost, fencedIsOut,
			endsForCause, endsWithRoom, homeRuns, oneServes, allAgree,
		} {
			m.Invariants = append(m.Invariants, explore.Invariant[*modelState]{
				Name: name, Holds: func(s *modelState) bool { return s.broken != name },
			})
		}
		r = m.Run()
	})
	return r
}

// modelWorlds lists the worlds to explore.
var modelWorlds = []struct {
	name   string
	hosted string // process that hosts the room at the start
	size   modelSize
	limits modelLimits
}{
	{"claims", "", small, modelLimits{nodes: 2, resolves: 2, hosts: 1, lost: 1, late: 1}},
	{"claims and an end", "", medium, modelLimits{nodes: 3, resolves: 2, crashes: 1, slow: 1}},
	{"a death", "b", small, modelLimits{nodes: 3, sweeps: 2, crashes: 1, ticks: 1}},
	{"a proven death", "b", medium, modelLimits{nodes: 2, hosts: 1, sweeps: 1, crashes: 1, starts: 1, late: 1, confirmations: true}},
	{"a pause in a claim", "", medium, modelLimits{nodes: 2, hosts: 1, sweeps: 1, pauses: 1, ticks: 1}},
	{"a cut", "b", small, modelLimits{nodes: 2, sweeps: 1, resolves: 1, cuts: 2, ticks: 1}},
	{"an outage", "b", small, modelLimits{nodes: 2, sweeps: 1, cuts: 1, outages: 1, ticks: 1}},
	{"a death and a host in an outage", "b", small, modelLimits{nodes: 2, hosts: 1, refreshes: 2, crashes: 1, outages: 1}},
	{
		"a late restore of a dead host", "b", large,
		modelLimits{nodes: 2, hosts: 1, refreshes: 2, crashes: 1, late: 1, wipes: 1, confirmations: true},
	},
	{"an outage and a start", "b", large, modelLimits{nodes: 2, sweeps: 1, cuts: 1, crashes: 1, starts: 1, outages: 1, ticks: 1}},
	{"two hosts without the store", "", small, modelLimits{nodes: 2, hosts: 2, outages: 1, refreshes: 1, lost: 1}},
	{"releases", "b", small, modelLimits{nodes: 2, hosts: 2, releases: 2, late: 1}},
	{"a loss of data", "b", small, modelLimits{nodes: 2, hosts: 1, resolves: 1, refreshes: 1, wipes: 1}},
	{"an earlier copy", "b", small, modelLimits{nodes: 2, hosts: 1, resolves: 1, releases: 1, copies: 1, reverts: 1}},
	{
		"an earlier copy and a death", "b", medium,
		modelLimits{nodes: 2, hosts: 1, sweeps: 1, refreshes: 1, crashes: 1, ticks: 1, copies: 1, reverts: 1},
	},
	{"an earlier copy and a cut", "b", large, modelLimits{nodes: 2, hosts: 2, resolves: 1, releases: 1, cuts: 1, copies: 1, reverts: 1}},
	{
		"an earlier copy and moves", "b", large,
		modelLimits{nodes: 2, hosts: 2, sweeps: 1, crashes: 1, starts: 1, confirmations: true, copies: 1, reverts: 1},
	},
	{"claims of three", "", large, modelLimits{nodes: 3, resolves: 3, crashes: 1, late: 1, slow: 1}},
	{"two deaths", "b", large, modelLimits{nodes: 3, sweeps: 2, crashes: 2, ticks: 1, late: 1, confirmations: true}},
	{"a restart", "b", large, modelLimits{nodes: 2, hosts: 1, sweeps: 1, refreshes: 1, crashes: 1, starts: 1, late: 1, slow: 1}},
	{"a pause", "b", large, modelLimits{nodes: 2, hosts: 1, sweeps: 1, refreshes: 1, pauses: 1, ticks: 1}},
	{"a pause and a cut", "b", large, modelLimits{nodes: 2, hosts: 1, sweeps: 2, pauses: 1, ticks: 2, cuts: 1}},
	{"a pause among three", "b", large, modelLimits{nodes: 3, hosts: 1, sweeps: 1, pauses: 1, ticks: 1}},
	{"a cut from gossip and the store", "b", large, modelLimits{nodes: 2, sweeps: 2, cuts: 1, deaf: 1, ticks: 2}},
	{"a death in an outage", "b", large, modelLimits{nodes: 2, sweeps: 2, cuts: 1, crashes: 1, outages: 1, ticks: 2}},
	{"two sides without the store", "", large, modelLimits{nodes: 2, hosts: 2, outages: 1, cuts: 2}},
	{"a loss of data and a cut", "b", large, modelLimits{nodes: 2, hosts: 2, resolves: 1, refreshes: 1, wipes: 1, cuts: 1}},
	{"a loss of data, a cut and late ops", "b", large, modelLimits{nodes: 2, hosts: 2, refreshes: 1, wipes: 1, cuts: 1, late: 1}},
	{"releases and answers that are lost", "b", large, modelLimits{nodes: 2, hosts: 2, releases: 2, refreshes: 1, late: 1, lost: 1}},
	{"two losses of data", "b", large, modelLimits{nodes: 2, hosts: 1, resolves: 1, refreshes: 2, wipes: 2}},
	{"two losses of data and a late op", "b", small, modelLimits{nodes: 2, hosts: 1, refreshes: 1, late: 1, wipes: 2}},
	{
		"two returns to an earlier copy", "b", small,
		modelLimits{nodes: 2, hosts: 1, resolves: 1, releases: 1, refreshes: 1, copies: 1, reverts: 2},
	},
	{"a jump of the store's clock", "b", small, modelLimits{nodes: 2, hosts: 1, resolves: 1, refreshes: 2, jumps: 1}},
	{"releases by name", "b", small, modelLimits{nodes: 2, resolves: 1, refreshes: 1, byName: 1}},
	{"a jump of the store's clock and a release by name", "b", medium, modelLimits{nodes: 2, resolves: 1, refreshes: 1, byName: 1, jumps: 1}},
	{"a jump of the store's clock and a death", "b", large, modelLimits{nodes: 2, hosts: 1, sweeps: 1, crashes: 1, ticks: 1, jumps: 1}},
	{"two losses of data and a death", "b", large, modelLimits{nodes: 2, hosts: 1, sweeps: 1, crashes: 1, ticks: 1, wipes: 2}},
}

func TestRoomModel(t *testing.T) {
	for _, c := range modelWorlds {
		if (c.size == large) != *modelLong || (c.size == medium && testing.Short()) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			r := exploreModel(t, c.limits, "", c.hosted, 300_000)
			t.Log(r, time.Since(begin))
			if r.Broken != "" || !r.Whole {
				t.Error("want all states, and none that breaks an invariant")
			}
		})
	}
}

func TestRoomModelFaults(t *testing.T) {
	for _, c := range []struct {
		fault  modelFault
		broken string
		hosted string
		limits modelLimits
	}{
		{comparesNothing, homeStays, "", modelLimits{nodes: 2, resolves: 2, cuts: 2}},
		{comparesLives, oneHeir, "b", modelLimits{nodes: 2, hosts: 2, releases: 2, late: 1}},
		{keepsEpoch, oneHome, "b", modelLimits{nodes: 2, sweeps: 1, crashes: 1, confirmations: true}},
		{clockGoesBack, epochGrows, "b", modelLimits{nodes: 2, sweeps: 1, crashes: 1, confirmations: true}},
		{gossipDecides, homeStays, "b", modelLimits{nodes: 2, sweeps: 1, cuts: 1}},
		{storeDecides, homeStays, "b", modelLimits{nodes: 2, sweeps: 1, deaf: 1, ticks: 1}},
		{silenceProves, homeStays, "b", modelLimits{nodes: 2, sweeps: 1, cuts: 1, outages: 1, ticks: 1}},
		{newComerProves, homeStays, "b", modelLimits{nodes: 2, sweeps: 1, cuts: 1, crashes: 1, starts: 1, outages: 1, ticks: 1}},
		{yieldsToDead, deadNoHeir, "b", modelLimits{nodes: 2, hosts: 1, sweeps: 1, refreshes: 1, crashes: 1, ticks: 1, copies: 1, reverts: 1}},
		{sameNumber, homeStays, "b", modelLimits{nodes: 2, sweeps: 1, late: 1, crashes: 1, starts: 1, confirmations: true}},
		{noFence, fencedIsOut, "b", modelLimits{nodes: 2, sweeps: 1, pauses: 1, ticks: 1}},
		{trustsCopies, hostingGrows, "b", modelLimits{nodes: 2, hosts: 2, releases: 1, cuts: 1, copies: 1, reverts: 1}},
		{hidesHeirs, endsWithRoom, "b", modelLimits{nodes: 2, resolves: 1, byName: 1}},
		{allAreHeirs, endsForCause, "b", modelLimits{nodes: 2, resolves: 1, jumps: 1}},
		{believes, readIsLost, "b", modelLimits{nodes: 2, sweeps: 1, refreshes: 2, pauses: 1, ticks: 1}},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			begin := time.Now()
			r := exploreModel(t, c.limits, c.fault, c.hosted, 100_000)
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r, time.Since(begin))
		})
	}
}
