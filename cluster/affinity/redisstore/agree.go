package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

var errSetting = errors.New("a setting has a name without spaces, and neither has line breaks")

// Agree implements pinstore.Store. Agree takes two commands, one after the other. The store adds two
// settings: the name of the cluster and the prefix.
//
// First, Agree records the name of the cluster under the prefix, because two clusters with the same prefix
// would confuse each other's rooms. Then Agree records the settings and the prefix under the name of the
// cluster. The keys for these settings do not start with the prefix, so that nodes with different prefixes
// see the same keys. If the store refuses a node because of its cluster name, the node does not record its
// settings. Therefore, the refused node cannot interfere with a node of its own cluster that has the right
// prefix.
func (s *Store) Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, settings pinstore.Settings) (pinstore.Agreed, error) {
	if ttl > 0 {
		ttl = max(ttl, time.Millisecond)
	}
	values := append(slices.Clone(settings.Values), pinstore.Setting{Name: "prefix", Value: s.prefix})
	if slices.ContainsFunc(values, unwritable) {
		return pinstore.Agreed{}, storeError(fmt.Sprintf("settings of cluster %.80q", settings.Cluster), errSetting)
	}
	name := []pinstore.Setting{{Name: "cluster", Value: strconv.QuoteToASCII(settings.Cluster)}}
	named, err := s.state(ctx, statement{(keys{prefix: s.prefix}).cluster(), self, ttl, settings.Since, true, name})
	if ttl > 0 && (err != nil || len(named.Differ) > 0) {
		return named, err
	}
	agreed, also := s.state(ctx, statement{fingerprint(settings.Cluster), self, ttl, settings.Since, settings.Trial, values})
	return agreed, errors.Join(err, also)
}

// unwritable reports whether the values of the keys cannot represent a setting.
func unwritable(s pinstore.Setting) bool {
	return s.Name == "" || strings.ContainsAny(s.Name, " \n\r\t") || strings.ContainsAny(s.Value, "\n\r")
}

// statement contains what a user records under three keys of a slot.
type statement struct {
	keys   []string
	self   lease.Incarnation
	ttl    time.Duration
	since  int64
	trial  bool
	values []pinstore.Setting
}

// state runs the script agree.lua.
func (s *Store) state(ctx context.Context, st statement) (pinstore.Agreed, error) {
	what := fmt.Sprintf("settings in %.80q", st.keys[0])
	if err := st.self.Node.Validate(); err != nil {
		return pinstore.Agreed{}, storeError(what, err)
	}
	trial := "0"
	if st.trial {
		trial = "1"
	}
	args := []string{textOf(st.self), strconv.FormatInt(st.ttl.Milliseconds(), 10), strconv.FormatInt(st.since, 10), trial}
	for _, own := range st.values {
		args = append(args, own.Name, own.Value)
	}
	words, err := s.agree.run(ctx, s.conn, call{st.keys, args})[0].Texts()
	if err != nil {
		return pinstore.Agreed{}, storeError(what, err)
	}
	agreed, err := agreedBy(words, st.values)
	if err != nil {
		return pinstore.Agreed{}, storeError(what, err)
	}
	return agreed, nil
}

// agreedBy parses the answer of the script agree.lua.
func agreedBy(words []string, values []pinstore.Setting) (agreed pinstore.Agreed, err error) {
	switch {
	case len(words) > 0 && words[0] != "":
		return agreedSince(words)
	case len(words)%3 != 1:
		return agreed, errAnswer
	}
	for d := range slices.Chunk(words[1:], 3) {
		by, err := parseIncarnation(d[2])
		i := slices.IndexFunc(values, func(own pinstore.Setting) bool { return own.Name == d[0] })
		if err != nil || i < 0 {
			return agreed, errAnswer
		}
		agreed.Differ = append(agreed.Differ, pinstore.Difference{Setting: d[0], Ours: values[i].Value, Theirs: d[1], By: by})
	}
	return agreed, err
}

// agreedSince parses the answer for settings that do not differ.
func agreedSince(words []string) (agreed pinstore.Agreed, err error) {
	agreed.Since, err = strconv.ParseInt(words[0], 10, 64)
	for _, text := range words[1:] {
		at, problem := parseIncarnation(text)
		if problem != nil {
			return agreed, errAnswer
		}
		agreed.Refused = append(agreed.Refused, at)
	}
	return agreed, err
}

// fingerprint returns three keys in the same slot: the string with the settings of a cluster, the zset of the
// incarnations that have these settings, and the zset of the refused incarnations. The name of the cluster
// can contain any bytes, so bytes that have a meaning in keys are escaped.
func fingerprint(cluster string) []string {
	var b strings.Builder
	for _, c := range []byte(cluster) {
		if c <= ' ' || c > '~' || c == '{' || c == '}' || c == '%' {
			_, _ = fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	tag := DefaultPrefix + "{" + b.String() + "}"
	return []string{tag + ":fingerprint", tag + ":users", tag + ":refused"}
}
