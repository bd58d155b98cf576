package settings

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roost-cluster/roost/cluster"
)

// Scope is a separate ring of the members that have this value for the label. If Label is "zone", Value is
// compared with the zone of a member.
type Scope struct{ Name, Label, Value string }

// Match reports whether a member belongs to the scope.
func (s Scope) Match(m *cluster.Member) bool { return m.Has(s.Label, s.Value) }

func (a *Agent) addScope(v string) error {
	name, rule, _ := strings.Cut(v, "=")
	label, value, _ := strings.Cut(rule, ":")
	switch {
	case name == "" || label == "" || value == "":
		return fmt.Errorf("%q does not have the form name=label:value, such as sfu=role:sfu or eu=zone:eu-1", v)
	case len(name) > cluster.MaxScopeName || !utf8.ValidString(name):
		return fmt.Errorf("name %.80q: want at most %d bytes of UTF-8", name, cluster.MaxScopeName)
	case slices.ContainsFunc(a.Scopes, func(s Scope) bool { return s.Name == name }):
		return fmt.Errorf("scope %q is given twice", name)
	case len(a.Scopes) == cluster.MaxScopes:
		return cluster.ErrManyScopes
	}
	a.Scopes = append(a.Scopes, Scope{name, label, value})
	return nil
}
