// Package settings reads settings from flags, environment variables and, for an agent, the configuration
// file. The package collects the problems of all sources and reports them together.
package settings

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

	"github.com/roost-cluster/roost/internal/agenturl"
)

// Setting is a value that a user can set. A flag overrides the environment variable, which overrides the
// configuration file.
type Setting struct {
	Name    string // name of the flag and of the key in the configuration file
	Short   string // letter of the short flag, if there is one
	Arg     string // what the help calls the value; "bool" for a switch
	Usage   string
	Default string // shown in the help, and used if no source has a value
	List    bool   // values are separated by commas or given in several flags
	Secret  bool   // messages never show the value
	Set     func(value string) error

	// FlagOnly is for values that concern only a single call. For example, ROOST_WEIGHT configures an agent, so it must
	// not set roost plan --weight.
	FlagOnly bool
}

// Variable returns the name of the environment variable for a setting.
func Variable(name string) string {
	return "ROOST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// raw keeps the values of a flag as typed. The values are checked only after all flags are parsed, so that
// the problems of all sources can be reported together.
type raw struct {
	arg, def string
	given    []string
}

// Set implements pflag.Value.
func (r *raw) Set(s string) error { r.given = append(r.given, s); return nil }

// String implements pflag.Value.
func (r *raw) String() string { return r.def }

// Type implements pflag.Value. The help prints the result after the name of the flag.
func (r *raw) Type() string { return r.arg }

// AddFlags adds a flag to cmd for each setting, in order.
func AddFlags(cmd *cobra.Command, settings []Setting) {
	cmd.Flags().SortFlags = false
	for _, s := range settings {
		flag := cmd.Flags().VarPF(&raw{arg: s.Arg, def: s.Default}, s.Name, s.Short, s.Usage)
		if s.Arg == "bool" {
			flag.NoOptDefVal = "true"
		}
		completeValue(cmd, s.Name, s.Arg)
	}
}

// completeValue configures the shell completion of a flag's value: one of a fixed set of words, a file name,
// or nothing. Commands complete node ids themselves.
func completeValue(cmd *cobra.Command, flag, arg string) {
	complete := cobra.NoFileCompletions
	switch {
	case arg == "bool" || arg == "FILE" || strings.HasPrefix(arg, "ID"):
		return
	case strings.Contains(arg, "|"):
		complete = cobra.FixedCompletions(strings.Split(arg, "|"), cobra.ShellCompDirectiveNoFileComp)
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// Sources are the places that values are read from.
type Sources struct {
	Flags  *pflag.FlagSet
	Getenv func(string) string

	path     string // path of the configuration file
	file     map[string]entry
	reserved string // the setting that cannot be in the file: the path of the file itself
}

// chosen is the value of a setting, from the source that takes precedence.
type chosen struct {
	values []string
	listed bool   // given as a YAML list or mapping
	origin string // place and value, such as: --ttl "7x"
	bad    bool   // the value was rejected
}

func (from Sources) choose(s Setting) (c chosen, ok bool) {
	choice := func(values []string, listed bool, place, text string) (chosen, bool) {
		if strings.HasPrefix(s.Arg, "HOST:PORT") {
			text = agenturl.Shown(text)
		}
		c := chosen{values: values, listed: listed, origin: fmt.Sprintf("%s %q", place, text)}
		if s.Secret {
			c.origin = place
		}
		return c, true
	}
	if flag := from.Flags.Lookup(s.Name); flag != nil && flag.Changed {
		given := flag.Value.(*raw).given
		if !s.List {
			given = given[len(given)-1:] // the last flag wins, as usual
		}
		return choice(s.split(given), false, "--"+s.Name, strings.Join(given, ","))
	}
	// An empty variable is considered unset, because many launchers cannot unset a variable.
	if v := from.Getenv(Variable(s.Name)); v != "" && !s.FlagOnly {
		return choice(s.split([]string{v}), false, Variable(s.Name), v)
	}
	if e, ok := from.file[s.Name]; ok && s.Name != from.reserved {
		values := e.values
		if !e.list {
			values = s.split(values)
		}
		return choice(values, e.list, fmt.Sprintf("%s:%d: %s", from.path, e.line, s.Name), strings.Join(e.values, ","))
	}
	if s.Default != "" {
		return choice(s.split([]string{s.Default}), false, "default "+s.Name, s.Default)
	}
	return chosen{}, false
}

func (s Setting) split(values []string) []string {
	if !s.List {
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

// Resolve applies all settings, and returns a UsageError that lists all problems.
func Resolve(settings []Setting, from Sources) error {
	_, problems := resolve(settings, from, func(string, []string) error { return nil })
	return Problems(problems)
}

// resolve applies all settings. resolve returns the value of each setting by name, and all problems. check is
// called with the values of one setting at a time.
func resolve(settings []Setting, from Sources, check func(name string, values []string) error) (map[string]chosen, []error) {
	var problems []error
	all := make(map[string]chosen)
	for _, s := range settings {
		c, ok := from.choose(s)
		if !ok {
			continue
		}
		err := s.apply(c)
		if err == nil {
			err = check(s.Name, c.values)
		}
		c.bad = err != nil
		all[s.Name] = c
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				problems = append(problems, fmt.Errorf("%s: %s", c.origin, strings.TrimSpace(line)))
			}
		}
	}
	return all, append(problems, unknownKeys(settings, from)...)
}

func (s Setting) apply(c chosen) error {
	if c.listed && !s.List {
		return errors.New("want one value, not a list")
	}
	for _, v := range c.values {
		if err := s.Set(v); err != nil {
			return err
		}
	}
	return nil
}

func unknownKeys(settings []Setting, from Sources) (problems []error) {
	var names []string
	for _, s := range settings {
		if s.Name != from.reserved {
			names = append(names, s.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(from.file)) {
		if !slices.Contains(names, key) {
			problems = append(problems, fmt.Errorf("%s:%d: unknown key %q%s", from.path, from.file[key].line, key, DidYouMean(key, names, "")))
		}
	}
	return problems
}

// UsageError is a problem that the user can fix on the command line, in the environment or in the
// configuration file.
type UsageError string

// Error implements the error interface.
func (e UsageError) Error() string { return string(e) }

// Problems joins all problems into one UsageError. If there are no problems, it returns nil.
func Problems(problems []error) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return UsageError(problems[0].Error())
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%d problems:", len(problems))
	for _, f := range problems {
		_, _ = fmt.Fprintf(&b, "\n  %v", f)
	}
	return UsageError(b.String())
}

// DidYouMean returns a hint that lists the names similar to typed, or "" if there are none or too many.
func DidYouMean(typed string, names []string, prefix string) string {
	// Cobra suggests only names of commands, so make each name a command.
	var pool cobra.Command
	pool.SuggestionsMinimumDistance = 2
	for _, name := range names {
		pool.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	similar := pool.SuggestionsFor(typed)
	const most = 5 // a hundred names that differ in one digit would not help
	if len(similar) == 0 || len(similar) > most {
		return ""
	}
	slices.Sort(similar)
	return "; did you mean " + prefix + strings.Join(similar, " or "+prefix) + "?"
}

// Text accepts any string.
func Text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

// Nonempty rejects an empty value. For example, if a script passes an unset variable to --key-file, the agent
// fails instead of running without encryption.
func Nonempty(to *string) func(string) error {
	return func(v string) error {
		if v == "" {
			return errors.New("the value is empty")
		}
		*to = v
		return nil
	}
}

// OneOf accepts only the given words.
func OneOf(to *string, words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("want %s", strings.Join(words, ", "))
		}
		*to = v
		return nil
	}
}

// Duration accepts durations above zero.
func Duration(to *time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return errors.New("want a duration such as 500ms or 6s")
		}
		if d <= 0 {
			return errors.New("want a duration above zero")
		}
		*to = d
		return nil
	}
}

// Bool accepts true and false.
func Bool(to *bool) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return errors.New("want true or false")
		}
		return nil
	}
}

// Number accepts whole numbers from least to most.
func Number[N int | int64 | uint64](to *N, least, most int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		*to = N(n)
		return nil
	}
}
