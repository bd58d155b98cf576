package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setting is one thing that a user can set in a T: by flag, by environment
// variable or, for the agent, in the configuration file. The first of these that
// has it decides, whatever the others say. A question about one call alone is
// flagOnly: ROOST_WEIGHT of an agent is no answer to roost plan --weight.
type setting[T any] struct {
	name   string // of the flag, and of the key in the file
	short  string // one letter, for flags that have it
	arg    string // what the help calls the value; "bool" for a switch
	usage  string
	def    string // shown in the help, and applied if nothing else is; "" = nothing
	many   bool   // a list: separated by commas, or given several times
	secret bool   // the value is a secret: no message shows it
	apply  func(t *T, value string) error

	flagOnly bool
}

// variable returns the environment variable of the setting of the given name.
func variable(name string) string {
	return "ROOST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// raw is a flag's value as it was typed. Nothing is judged while flags are
// parsed, so that one run can report every fault of every layer.
type raw struct {
	arg, def string
	given    []string
}

// Set implements pflag.Value.
func (r *raw) Set(s string) error { r.given = append(r.given, s); return nil }

// String implements pflag.Value.
func (r *raw) String() string { return r.def }

// Type implements pflag.Value; the help prints it behind the flag's name.
func (r *raw) Type() string { return r.arg }

func addFlags[T any](cmd *cobra.Command, settings []setting[T]) {
	for _, s := range settings {
		flag := cmd.Flags().VarPF(&raw{arg: s.arg, def: s.def}, s.name, s.short, s.usage)
		if s.arg == "bool" {
			flag.NoOptDefVal = "true"
		}
		completeValue(cmd, s.name, s.arg)
	}
}

// layers are where settings come from, the flags first.
type layers struct {
	flags    *pflag.FlagSet
	getenv   func(string) string
	path     string           // of the file
	file     map[string]entry // what it holds
	reserved string           // the setting that the file cannot hold: its own path
}

// chosen is what the layers say about one setting.
type chosen struct {
	values []string
	listed bool   // as a YAML list or mapping
	place  string // such as: --ttl
	origin string // place and value, such as: --ttl "7x"
}

func choice(values []string, listed bool, place, text string) chosen {
	return chosen{values, listed, place, fmt.Sprintf("%s %q", place, text)}
}

func (l layers) choose(name, def string, many bool) (c chosen, ok bool) {
	if flag := l.flags.Lookup(name); flag != nil && flag.Changed {
		given := flag.Value.(*raw).given
		if !many {
			given = given[len(given)-1:] // as is the custom
		}
		return choice(split(given, many), false, "--"+name, strings.Join(given, ",")), true
	}
	// An empty variable counts as none, since many launchers cannot unset one.
	if v := l.getenv(variable(name)); v != "" {
		return choice(split([]string{v}, many), false, variable(name), v), true
	}
	if e, ok := l.file[name]; ok && name != l.reserved {
		values := e.values
		if !e.list {
			values = split(values, many)
		}
		return choice(values, e.list, fmt.Sprintf("%s:%d: %s", l.path, e.line, name), strings.Join(e.values, ",")), true
	}
	if def != "" {
		return choice(split([]string{def}, many), false, "default "+name, def), true
	}
	return chosen{}, false
}

func split(values []string, many bool) []string {
	if !many {
		return values
	}
	var parts []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// origin is where the value of a setting came from.
type origin struct {
	text string
	bad  bool // the value was refused
}

// resolve applies what the layers say to t. It returns where each setting came
// from, and everything that is wrong. check judges a T in which one setting alone
// is applied, so that a fault can be laid at its door; it may be nil.
func resolve[T any](t *T, settings []setting[T], from layers, check func(T) error) (map[string]origin, []error) {
	var faults []error
	origins := make(map[string]origin)
	for _, s := range settings {
		layers := from
		if s.flagOnly {
			layers.getenv = func(string) string { return "" }
		}
		c, ok := layers.choose(s.name, s.def, s.many)
		if !ok {
			continue
		}
		if s.secret {
			c.origin = c.place
		}
		err := s.applyAll(t, c, check)
		origins[s.name] = origin{c.origin, err != nil}
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				faults = append(faults, fmt.Errorf("%s: %s", c.origin, strings.TrimSpace(line)))
			}
		}
	}
	return origins, append(faults, unknownKeys(settings, from)...)
}

func (s setting[T]) applyAll(t *T, c chosen, check func(T) error) error {
	if c.listed && !s.many {
		return errors.New("want one value, not a list")
	}
	var alone T
	for _, v := range c.values {
		if err := errors.Join(s.apply(t, v), s.apply(&alone, v)); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n") // both say the same
			return errors.New(first)
		}
	}
	if check == nil {
		return nil
	}
	return check(alone)
}

func unknownKeys[T any](settings []setting[T], from layers) []error {
	var names []string
	for _, s := range settings {
		if s.name != from.reserved {
			names = append(names, s.name)
		}
	}
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(from.file)) {
		if !slices.Contains(names, key) {
			faults = append(faults, fmt.Errorf("%s:%d: unknown key %q%s", from.path, from.file[key].line, key, didYouMean(key, names, "")))
		}
	}
	return faults
}

// didYouMean returns a hint at the names that resemble typed, or nothing.
func didYouMean(typed string, names []string, prefix string) string {
	// cobra measures the distance of names, but only of commands.
	var pool cobra.Command
	pool.SuggestionsMinimumDistance = 2
	for _, name := range names {
		pool.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	similar := pool.SuggestionsFor(typed)
	const most = 5 // of a hundred names that differ in a digit, none is a hint
	if len(similar) == 0 || len(similar) > most {
		return ""
	}
	slices.Sort(similar)
	return "; did you mean " + prefix + strings.Join(similar, " or "+prefix) + "?"
}

func setText[T any](field func(*T) *string) func(*T, string) error {
	return func(t *T, v string) error {
		*field(t) = v
		return nil
	}
}

// setNonempty refuses an empty value where it would mean something else than what
// was meant: a script whose variable for --key-file is not set must not run in
// plain text.
func setNonempty[T any](field func(*T) *string) func(*T, string) error {
	return func(t *T, v string) error {
		if v == "" {
			return errors.New("the value is empty")
		}
		*field(t) = v
		return nil
	}
}

func setDuration[T any](field func(*T) *time.Duration) func(*T, string) error {
	return func(t *T, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return errors.New("want a duration such as 500ms or 6s")
		}
		if d <= 0 {
			return errors.New("want a duration above zero")
		}
		*field(t) = d
		return nil
	}
}

func setBool[T any](field func(*T) *bool) func(*T, string) error {
	return func(t *T, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("want true or false")
		}
		*field(t) = b
		return nil
	}
}

// setNumber takes whole numbers from least to most.
func setNumber[T any](least, most int64, set func(*T, int64)) func(*T, string) error {
	return func(t *T, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		set(t, n)
		return nil
	}
}
