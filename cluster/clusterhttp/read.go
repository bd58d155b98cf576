package clusterhttp

import (
	_ "embed"
	"encoding/base64"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	maxKey        = 4 << 10 // bytes
	defaultOwners = 3
	maxOwners     = 100
)

// openAPI describes the endpoints in OpenAPI 3.1, for client generators. A test generates the file from the
// types in api.go, and internal/e2e checks responses against it.
//
//go:embed openapi.json
var openAPI []byte

func (a *api) describe(w http.ResponseWriter, _ *http.Request) { writeBody(w, http.StatusOK, openAPI) }

// Each endpoint builds its response from one snapshot, so that the parts of the response agree.

func (a *api) place(ring *ring, r *http.Request) (any, *Problem) {
	key, p := keyOf(r)
	if p != nil {
		return nil, p
	}
	s := ring.Snapshot()
	owner, err := s.Place(key)
	if err != nil {
		return nil, a.problemOf(err)
	}
	return &Placed{
		Key: key, Partition: placement.Of(key, s.Table.Partitions()), Owner: memberOf(s, owner),
		Version: s.Version(), Digest: s.Digest(), Stale: a.stale(s),
	}, nil
}

func (a *api) owners(ring *ring, r *http.Request) (any, *Problem) {
	key, p := keyOf(r)
	if p != nil {
		return nil, p
	}
	n, p := countOf(r, "n", defaultOwners, maxOwners)
	if p != nil {
		return nil, p
	}
	s := ring.Snapshot()
	if _, err := s.Place(key); err != nil {
		return nil, a.problemOf(err)
	}
	of := placement.Of(key, s.Table.Partitions())
	ranked := Ranked{Key: key, Partition: of, Owners: []Member{}, Why: s.Table.Why(of), Stale: a.stale(s)}
	for _, m := range s.Owners(key, n) {
		ranked.Owners = append(ranked.Owners, memberOf(s, m))
	}
	return &ranked, nil
}

func (a *api) members(http.ResponseWriter, *http.Request) (any, *Problem) {
	s := a.agent.Snapshot()
	return answerOf(a.listed.get(s, agesHold, func() any { return a.membersOf(s) }))
}

// agesHold is how long a response that contains lease ages can be reused.
const agesHold = 100 * time.Millisecond

func (a *api) membersOf(s *cluster.Snapshot) Members {
	members := make([]Member, len(s.Members))
	for i := range s.Members {
		members[i] = memberOf(s, s.Members[i])
		members[i].Keys, members[i].HTTP = s.Members[i].KeyFingerprints(), s.Members[i].HTTP()
		members[i].Meta = base64.StdEncoding.EncodeToString([]byte(s.Members[i].Meta))
	}
	var ahead []report.Ahead
	for _, id := range slices.Sorted(maps.Keys(s.Ahead)) {
		ahead = append(ahead, report.Ahead{ID: id, ByMS: s.Ahead[id].Milliseconds()})
	}
	return Members{
		Self:         a.self,
		Members:      members,
		Version:      s.Version(),
		Digest:       s.Digest(),
		Stale:        s.Fenced || a.stalled() != nil,
		Converged:    s.Converged(),
		Diverged:     s.Diverged(),
		Cordons:      cordons(s),
		Spared:       s.Spared,
		Ahead:        ahead,
		StreamsAlone: s.StreamsAlone,
		Lost:         lostOf(s),
	}
}

func (a *api) partitions(ring *ring, _ *http.Request) (any, *Problem) {
	s := ring.Snapshot()
	if s.Table == nil {
		return nil, a.problemOf(cluster.ErrNotReady)
	}
	key := partitionsKey{table: s.Table, version: s.Version(), divergence: s.Diverged(), stale: a.stale(s)}
	return answerOf(ring.kept.partitions.get(key, 0, func() any {
		b := s.Table.Balance()
		return Partitions{
			Export: s.Table.Export(key.version), Counts: b.Counts,
			Balance:  Balance{MaxMean: b.MaxMean, CV: b.CV, Advice: b.Advice()},
			Diverged: key.divergence,
			Stale:    key.stale,
		}
	}))
}

// stale reports whether the table of s may be out of date, because the node is isolated or fenced, or because the
// agent's loop is stalled.
func (a *api) stale(s *cluster.Snapshot) bool { return s.Stale() || a.stalled() != nil }

// owned uses ring.Owned instead of the snapshot, because the node's own lease may have expired since the
// snapshot was made.
func (a *api) owned(ring *ring, _ *http.Request) (any, *Problem) {
	state := ring.Snapshot().State
	owned := append([]placement.Partition{}, ring.Owned()...)
	return answerOf(ring.kept.owned.get(ownedKey{state, len(owned) > 0}, 0, func() any {
		return Owned{Self: a.self, Partitions: owned, Waiting: append([]placement.Partition{}, state.Waits()...)}
	}))
}

func (a *api) stats(http.ResponseWriter, *http.Request) (any, *Problem) {
	stats := a.statsOf(a.agent.Snapshot())
	return &stats, nil
}

func (a *api) statsOf(s *cluster.Snapshot) Stats {
	cfg := a.agent.Config()
	stats := Stats{
		Self: a.self, State: a.state(s), Holds: holdsOf(s), Counts: s.Stats, Readers: a.agent.ReaderStats(),
		UptimeMS: time.Since(a.since).Milliseconds(), Resources: a.agent.Load().Resources,
		Settings: Settings{
			Cluster:     cfg.Cluster,
			Partitions:  cfg.Partitions,
			Strategy:    cfg.Strategy.Name(),
			HeartbeatMS: cfg.HeartbeatInterval.Milliseconds(),
			TTLMS:       cfg.LeaseTTL.Milliseconds(),
			MaxSkewMS:   cfg.MaxSkew.Milliseconds(),
			MinMembers:  cfg.MinMembers,
			Split:       string(cfg.Split),
			Addr:        a.agent.Addr(),
			Join:        append([]string{}, cfg.Join...),
		},
	}
	if why := s.Waits; why != nil {
		stats.Waits = why.Error()
	}
	if why := s.Unreachable; why != nil {
		stats.Unreachable = why.Error()
	}
	if a.sources != nil {
		stats.Sources = a.sources()
	}
	for _, r := range a.agent.Rejections() {
		stats.Rejected = append(stats.Rejected, Rejection{
			Reason: r.Reason, Over: r.Over, From: r.From, Cluster: r.Cluster, Count: r.Count, AgoMS: time.Since(r.Latest).Milliseconds(),
		})
	}
	for _, sc := range a.agent.Scopes() {
		stats.Scopes = append(stats.Scopes, report.Scope{Name: sc.Name(), Digest: sc.Snapshot().Table.Digest()})
	}
	if a.rooms != nil {
		rooms := a.rooms.Stats()
		stats.Rooms, stats.Evacuation = &rooms, rooms.Evacuation
	}
	return stats
}

func holdsOf(s *cluster.Snapshot) (all []Hold) {
	for _, h := range s.Holds {
		all = append(all, holdOf(h))
	}
	return all
}

func holdOf(h cluster.Hold) Hold {
	hold := Hold{Cause: h.Cause, Reason: h.Reason}
	if !h.Until.IsZero() {
		hold.ForMS = max(1, time.Until(h.Until).Milliseconds())
	}
	return hold
}

func memberOf(s *cluster.Snapshot, m *cluster.Member) Member {
	member := Member{
		Profile:       m.Profile,
		State:         m.State,
		AgeMS:         ageOf(m),
		Load:          max(0, m.Load),
		NoLoad:        m.Load == lease.NoLoad,
		ClockOffsetMS: m.ClockOffset.Milliseconds(),
		InSync:        s.InSync(m),
		Unhealthy:     m.Unhealthy,
	}
	if e, cordoned := s.CordonOf(m.ID); cordoned {
		own := cordonOf(e)
		member.Cordoned = &own
	}
	if !m.FlappingUntil.IsZero() {
		member.FlappingMS = max(1, time.Until(m.FlappingUntil).Milliseconds())
	}
	if !m.Drains.IsZero() {
		member.DrainsMS = max(1, time.Since(m.Drains).Milliseconds())
	}
	return member
}

// ageOf returns the age of a member's lease in milliseconds, at least 1. ageOf returns 0 for a member that
// this node has never met.
func ageOf(m *cluster.Member) int64 {
	if age := m.Age(); age < math.MaxInt64 {
		return max(1, age.Milliseconds())
	}
	return 0
}

func lostOf(s *cluster.Snapshot) (all []Lost) {
	for _, l := range s.Lost() {
		all = append(all, Lost{
			Profile: l.Profile, Reason: l.Reason, AgoMS: time.Since(l.At).Milliseconds(), Partitions: l.Partitions, HTTP: l.HTTP(),
		})
	}
	return all
}

// millis rounds a time down to milliseconds, the precision of the times in a History.
func millis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func (a *api) history(http.ResponseWriter, *http.Request) (any, *Problem) {
	h := a.pastOf()
	return &h, nil
}

func (a *api) pastOf() History {
	past := a.agent.History()
	all := past.Events
	if a.rooms != nil {
		all = append(a.rooms.History(), all...)
		slices.SortStableFunc(all, func(x, y cluster.Event) int { return x.At.Compare(y.At) })
	}
	h := History{Self: a.self, Now: millis(time.Now()), Events: make([]Event, len(all)), Samples: make([]Sample, len(past.Samples))}
	for i, e := range all {
		h.Events[i] = Event(e)
		h.Events[i].At = millis(e.At)
	}
	for i, f := range past.Samples {
		h.Samples[i] = Sample(f)
		h.Samples[i].At = millis(f.At)
	}
	return h
}

// keyOf returns the parameter key. A key must be UTF-8, because the JSON encoder would silently replace
// invalid bytes in the response.
func keyOf(r *http.Request) (string, *Problem) {
	key, p := param(r.URL.RawQuery, "key")
	switch {
	case p != nil:
		return "", p
	case key == "":
		return "", badRequest("key is missing: request %s?key=…", r.URL.Path)
	case len(key) > maxKey:
		return "", badRequest("key has %d bytes, at most %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return "", badRequest("key is not UTF-8")
	}
	return key, nil
}

// countOf returns a parameter, which must be between 1 and most. If the parameter is missing, countOf returns
// the value of missing.
func countOf(r *http.Request, name string, missing, most int) (int, *Problem) {
	text, p := param(r.URL.RawQuery, name)
	if p != nil || text == "" {
		return missing, p
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest("%s is %.20q; it must be 1 to %d", name, text, most)
	}
	return n, nil
}

// param returns the value of a parameter of a query, or "" if it is missing.
func param(query, name string) (value string, _ *Problem) {
	value, _, p := find(query, name)
	return value, p
}

// find returns the value of a parameter of a query, and whether the parameter is present. find parses like
// url.ParseQuery, but does not build a map of all parameters. A parameter that appears twice is an error. A
// semicolon is not a separator.
func find(query, name string) (value string, found bool, _ *Problem) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		k, v, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(k); err != nil || k != name {
			continue
		}
		v, err := url.QueryUnescape(v)
		if err != nil {
			return "", true, badRequest("%s: %v", name, err)
		}
		if found {
			return "", true, badRequest("%s appears twice", name)
		}
		value, found = v, true
	}
	return value, found, nil
}
