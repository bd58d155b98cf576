package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

var errSetting = errors.New("a setting has a name without spaces, and neither has line breaks")

// Agree implements pinstore.Store. It takes one command, and states the prefix, too. Its keys do not
// begin with the prefix: nodes with different prefixes look at the same keys.
func (s *Store) Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, settings pinstore.Settings) (pinstore.Agreed, error) {
	key, users, refused := fingerprint(settings.Cluster)
	what := fmt.Sprintf("settings in %.80q", key)
	if err := self.Node.Validate(); err != nil {
		return pinstore.Agreed{}, fault(what, err)
	}
	if ttl > 0 {
		ttl = max(ttl, time.Millisecond)
	}
	values := append(slices.Clone(settings.Values), pinstore.Setting{Name: "prefix", Value: s.opt.Prefix})
	trial := "0"
	if settings.Trial {
		trial = "1"
	}
	args := []string{textOf(self), strconv.FormatInt(ttl.Milliseconds(), 10), strconv.FormatInt(settings.Since, 10), trial}
	for _, own := range values {
		if own.Name == "" || strings.ContainsAny(own.Name, " \n\r\t") || strings.ContainsAny(own.Value, "\n\r") {
			return pinstore.Agreed{}, fault(what, errSetting)
		}
		args = append(args, own.Name, own.Value)
	}
	answers, err := s.runPlain(ctx, s.agree, call{[]string{key, users, refused}, args})
	if err != nil {
		return pinstore.Agreed{}, fault(what, err)
	}
	words, err := answers[0].AsStrSlice()
	if err != nil {
		return pinstore.Agreed{}, fault(what, err)
	}
	agreed, err := agreedBy(words, values)
	if err != nil {
		return pinstore.Agreed{}, fault(what, err)
	}
	return agreed, nil
}

// agreedBy reads the answer of the script.
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

// agreedSince reads the answer to settings that do not differ.
func agreedSince(words []string) (agreed pinstore.Agreed, err error) {
	agreed.Since, err = strconv.ParseInt(words[0], 10, 64)
	for _, text := range words[1:] {
		at, fault := parseIncarnation(text)
		if fault != nil {
			return agreed, errAnswer
		}
		agreed.Refused = append(agreed.Refused, at)
	}
	return agreed, err
}

// fingerprint is the string that holds the settings of a cluster, the zset of the
// incarnations that state them, and the key of the refused incarnations, in one slot. The name of the cluster may have any bytes, so
// bytes with a meaning in keys are escaped.
func fingerprint(cluster string) (settings, users, refused string) {
	var b strings.Builder
	for _, c := range []byte(cluster) {
		if c <= ' ' || c > '~' || c == '{' || c == '}' || c == '%' {
			_, _ = fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	tag := DefaultPrefix + "{" + b.String() + "}"
	return tag + ":fingerprint", tag + ":users", tag + ":refused"
}
