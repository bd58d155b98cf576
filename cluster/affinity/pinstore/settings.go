package pinstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Settings are the values that a user has for the settings that all users of a cluster must share. Users with
// different settings would pin the same room to different nodes.
type Settings struct {
	Cluster string    // the cluster's name; each cluster has its own settings
	Values  []Setting // with distinct names

	// Since is the Agreed.Since that this user's latest call returned, or 0. After the store has lost its
	// data, a user that had agreed with others replaces the settings of a user that came later.
	Since int64

	// Trial keeps this user out of the Agreed.Refused of other users if the store refuses these settings.
	Trial bool
}

// Setting is one of the Settings. The name must not contain spaces. The name and the value must not contain
// line breaks.
type Setting struct{ Name, Value string }

// Agreed is the store's answer to Settings.
type Agreed struct {
	Since  int64        // since when users have had these settings, by the store's clock; 0 if some differ
	Differ []Difference // in the order of Settings.Values, followed by the store's own settings

	// Refused lists the users whose latest settings differ from the agreed settings. Refused excludes users
	// whose settings were removed or have expired. Refused is nil if any of these settings differ.
	Refused []lease.Incarnation
}

// Difference describes a setting for which another user has a different value.
type Difference struct {
	Setting, Ours, Theirs string
	By                    lease.Incarnation // the user that recently stated the other value
}

// statement contains the settings of a cluster and the users that recorded them.
type statement struct {
	since  int64
	values map[string]stated
	users  map[lease.Incarnation]time.Time // until when

	refused map[lease.Incarnation]time.Time // refused users, and until when each is listed
}

type stated struct {
	value string
	by    lease.Incarnation
	until time.Time
}

// Agree implements Store.
func (m *Memory) Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, s Settings) (Agreed, error) {
	if err := ctx.Err(); err != nil {
		return Agreed{}, fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	is := m.statement(s.Cluster, now)
	if ttl <= 0 {
		delete(is.refused, self)
		if delete(is.users, self); len(is.users) == 0 {
			delete(m.stated, s.Cluster)
		}
		return Agreed{}, nil
	}
	differ := is.differ(s.Values)
	earlier := s.Since != 0 && s.Since < is.since
	until := now.Add(ttl)
	if len(differ) > 0 && !earlier {
		if delete(is.users, self); !s.Trial {
			is.refused[self] = until
		}
		return Agreed{Differ: differ}, nil
	}
	if len(differ) > 0 {
		clear(is.values)
	}
	if earlier {
		is.since = s.Since
	}
	for _, own := range s.Values {
		if until.After(is.values[own.Name].until) {
			is.values[own.Name] = stated{own.Value, self, until}
		}
	}
	is.users[self] = until
	delete(is.refused, self)
	return Agreed{Since: is.since, Refused: slices.Collect(maps.Keys(is.refused))}, nil
}

func (s *statement) differ(values []Setting) (differ []Difference) {
	for _, own := range values {
		if v, ok := s.values[own.Name]; ok && v.value != own.Value {
			differ = append(differ, Difference{own.Name, own.Value, v.value, v.by})
		}
	}
	return differ
}

// statement returns the current statement of a cluster.
func (m *Memory) statement(cluster string, now time.Time) *statement {
	is := m.stated[cluster]
	if is != nil {
		maps.DeleteFunc(is.values, func(_ string, v stated) bool { return !now.Before(v.until) })
		over := func(_ lease.Incarnation, until time.Time) bool { return !now.Before(until) }
		maps.DeleteFunc(is.users, over)
		maps.DeleteFunc(is.refused, over)
	}
	if is == nil || len(is.values) == 0 {
		is = &statement{now.UnixMilli(), make(map[string]stated), make(map[lease.Incarnation]time.Time), make(map[lease.Incarnation]time.Time)}
		m.stated[cluster] = is
	}
	return is
}

func (s *statement) clone() *statement {
	return &statement{s.since, maps.Clone(s.values), maps.Clone(s.users), maps.Clone(s.refused)}
}
