// Package rekey changes the gossip key of a cluster step by step. Each step is carried out by the agents of
// all members.
package rekey

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// ErrPartly is the error of a step that some agents did not take. The output names these agents.
var ErrPartly = errors.New("the step failed at some agents")

// Step is one step of changing the gossip key: installing a key, sending with it, or removing an old key. All
// agents take the step.
type Step struct {
	install     string // path of a file
	use, remove string // fingerprints
	despiteLost bool

	name  string // install, use or remove
	key   []byte // the key of install
	print string // the fingerprint of the key
}

// Settings returns the settings of the command.
func (k *Step) Settings() []settings.Setting {
	return []settings.Setting{
		{Name: "install", Arg: "FILE", FlagOnly: true, Set: settings.Nonempty(&k.install), Usage: "make all agents also accept the key in FILE"},
		{Name: "use", Arg: "KEY", FlagOnly: true, Set: fingerprint(&k.use), Usage: "make all agents send with the key that has this fingerprint"},
		{
			Name: "remove", Arg: "KEY", FlagOnly: true, Set: fingerprint(&k.remove),
			Usage: "make all agents drop the key that has this fingerprint; plain makes them refuse plain text",
		},
		{
			Name: "despite-lost", Arg: "bool", FlagOnly: true, Set: settings.Bool(&k.despiteLost),
			Usage: "continue although members are lost, which cannot rejoin until you change their key files",
		},
	}
}

var keyPrint = regexp.MustCompile(`^([0-9a-f]{8}|` + cluster.PlainText + `)$`)

func fingerprint(to *string) func(string) error {
	return func(v string) error {
		if !keyPrint.MatchString(v) {
			return errors.New("want the fingerprint of a key, 8 hexadecimal digits, or plain: see roost keys")
		}
		*to = v
		return nil
	}
}

// Asked reports whether the user has asked for a step.
func (k *Step) Asked() bool { return len(k.asked()) > 0 }

func (k *Step) asked() (steps []string) {
	for _, step := range []struct{ name, value string }{{"install", k.install}, {"use", k.use}, {"remove", k.remove}} {
		if step.value != "" {
			steps = append(steps, step.name)
		}
	}
	return steps
}

// result is the output with --output json.
type result struct {
	Step   string         `json:"step"` // install, use or remove
	Key    string         `json:"key"`  // fingerprint of the key
	Agents []taker        `json:"agents"`
	Lost   []lease.NodeID `json:"lost"` // members that are gone without having left; they may come back with their old keys
}

type taker struct {
	ID      lease.NodeID `json:"id"`
	HTTP    string       `json:"http,omitempty"`
	Keys    []string     `json:"keys,omitempty"`
	Unsaved string       `json:"unsaved,omitempty"` // why a restart of the agent would undo the step
	Problem string       `json:"problem,omitempty"` // why the agent did not take the step
}

// Run takes the step at the agent of s, and then at all other agents. If the agent of s refuses, no other
// agent is asked.
func (k *Step) Run(ctx context.Context, s *session.Session) error {
	if err := k.prepare(s); err != nil {
		return err
	}
	before, err := membersOf(ctx, s)
	if err != nil {
		return err
	}
	lost := lostOf(before)
	if len(lost) > 0 && k.install == "" && !k.despiteLost {
		return fmt.Errorf("--%s: %s stopped without leaving, or is on the other side of a split, "+
			"and may still use the old keys. Then it could not rejoin. "+
			"Wait until it is back, or use --despite-lost and change its key file by hand", k.name, survey.Few(lost))
	}
	agents, done, err := k.takeAll(ctx, s)
	if err != nil {
		return err
	}
	after, err := membersOf(ctx, s) // the answers of agents are shown even after an error
	answer := result{Step: k.name, Key: k.print, Lost: lost}
	for _, a := range agents {
		r := taker{ID: a.ID, HTTP: a.HTTP, Problem: a.Problem}
		i := slices.IndexFunc(after.Members, func(n clusterhttp.Member) bool { return n.ID == a.ID })
		if d, ok := done[a.ID]; ok {
			r.Keys, r.Unsaved = d.Keys, fmt.Sprintf("%.200s", d.Unsaved)
		} else if i >= 0 && k.doneBy(after.Members[i].Keys) { // changed via its key file; it may have no HTTP API
			r.Keys, r.Problem = after.Members[i].Keys, ""
		}
		answer.Agents = append(answer.Agents, r)
	}
	return errors.Join(answer.show(s), err)
}

// lostOf returns the members that are gone without having left.
func lostOf(m clusterhttp.Members) []lease.NodeID {
	lost := []lease.NodeID{}
	for _, l := range m.Lost {
		if l.Reason != lease.Departed {
			lost = append(lost, l.ID)
		}
	}
	return lost
}

// prepare checks the settings and reads the key to install.
func (k *Step) prepare(s *session.Session) error {
	steps := k.asked()
	if len(steps) > 1 {
		return settings.UsageError("--" + strings.Join(steps, " and --") + ": use one at a time, because gossip needs time between the steps")
	}
	if err := k.readKey(s); err != nil {
		return err
	}
	if err := k.withheld(s); err != nil {
		return settings.UsageError(err.Error())
	}
	k.name, k.print = steps[0], k.use+k.remove
	if k.key != nil {
		k.print = cluster.KeyFingerprint(k.key)
	}
	return nil
}

// takeAll takes the step at all agents. takeAll returns all agents, and the answers of those that took the
// step.
func (k *Step) takeAll(ctx context.Context, s *session.Session) ([]survey.Agent, map[lease.NodeID]clusterhttp.Keys, error) {
	first, err := k.take(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	done := make(map[lease.NodeID]clusterhttp.Keys)
	progress := s.Progress()
	agents, err := survey.Take(ctx, s, func(ctx context.Context, s *session.Session, id lease.NodeID) error {
		keys, err := k.take(ctx, s)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			done[id] = keys
		}
		return err
	}, func(done, of int) { progress.Show(fmt.Sprintf("asked %d of %s", done, term.Plural(of, "other agent"))) })
	progress.Clear()
	if err != nil {
		return nil, nil, err
	}
	done[agents[0].ID] = first
	return agents, done, nil
}

func membersOf(ctx context.Context, s *session.Session) (clusterhttp.Members, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	return s.Members(ctx)
}

// doneBy reports whether a member that uses these keys has taken the step.
func (k *Step) doneBy(keys []string) bool {
	switch k.name {
	case "install":
		return slices.Contains(keys, k.print)
	case "use":
		return len(keys) > 0 && keys[0] == k.print
	}
	return !slices.Contains(keys, k.print) && (len(keys) > 0 || k.print != cluster.PlainText)
}

func (k *Step) readKey(s *session.Session) error {
	if k.install == "" {
		return nil
	}
	keys, warning, err := settings.Keys(k.install)
	if warning != "" {
		term.Complain(s.Err, "warning: "+warning)
	}
	switch {
	case err != nil:
		return settings.UsageError(fmt.Sprintf("--install %q: %v", k.install, err))
	case cluster.KeyFingerprint(keys[0]) == cluster.PlainText:
		return settings.UsageError(fmt.Sprintf("--install %q: the file has no key: generate one with roost keygen", k.install))
	case len(keys) > 1:
		return settings.UsageError(fmt.Sprintf("--install %q: the file has %d keys: give a file that has only the new key", k.install, len(keys)))
	}
	k.key = keys[0]
	return nil
}

// withheld returns an error if the step has a key to install and the key must not be sent to the agent.
func (k *Step) withheld(s *session.Session) error {
	if why := s.Withheld(); why != "" && k.key != nil {
		return fmt.Errorf("the key was not sent to the agent at %s, %s", s.Addr, why)
	}
	return nil
}

// spread limits how long members can take to learn of each other's last step.
const spread = 5 * time.Second

// take takes the step at one agent. If the agent first has to learn of another member's last step, take
// retries for at most spread.
func (k *Step) take(ctx context.Context, s *session.Session) (clusterhttp.Keys, error) {
	if err := k.withheld(s); err != nil {
		return clusterhttp.Keys{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.Timeout, spread))
	defer cancel()
	var early error
	for {
		keys, err := k.call(ctx, s)
		if p, ok := errors.AsType[*clusterhttp.Problem](err); ok && (p.Code == clusterhttp.CodeKeyLacking || p.Code == clusterhttp.CodeKeyInUse) {
			early = err
		} else if early == nil || ctx.Err() == nil {
			if err == nil && !k.doneBy(keys.Keys) {
				err = fmt.Errorf("the agent at %s answers, but has not taken the step", s.Addr)
			}
			return keys, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return clusterhttp.Keys{}, early
		}
	}
}

func (k *Step) call(ctx context.Context, s *session.Session) (clusterhttp.Keys, error) {
	switch {
	case k.use != "":
		return s.UseKey(ctx, k.use)
	case k.remove != "":
		return s.RemoveKey(ctx, k.remove)
	}
	return s.InstallKey(ctx, k.key)
}

func (r result) show(s *session.Session) error {
	var failed, unsaved, others []string
	for _, a := range r.Agents {
		switch {
		case a.Problem != "":
			failed = append(failed, string(a.ID))
		case a.Unsaved != "":
			unsaved = append(unsaved, string(a.ID))
		}
		for _, print := range a.Keys {
			if print != r.Key && !slices.Contains(others, print) {
				others = append(others, print)
			}
		}
	}
	var end error
	if len(failed) > 0 {
		end = ErrPartly
	}
	if s.JSON {
		return errors.Join(s.PrintJSON(r), end)
	}
	err := s.Table("AGENT\tSENDS WITH\tACCEPTS\tNOTE", func(row func(...any)) {
		for _, a := range r.Agents {
			a.row(row)
		}
	}, "\n"+strings.Join(r.advice(failed, unsaved, others), "\n")+"\n")
	return errors.Join(err, end)
}

func (a taker) row(row func(...any)) {
	if a.Problem != "" {
		row(a.ID, "?", "?", term.Toned{Text: a.Problem, Tone: term.Bad})
		return
	}
	var note term.Toned
	if a.Unsaved != "" {
		note = term.Toned{Text: "not saved: " + a.Unsaved, Tone: term.Warning}
	}
	row(a.ID, a.Keys[0], term.OrDash(strings.Join(a.Keys[1:], " ")), note)
}

// advice returns lines that tell the user how far the step has got and what to do next.
func (r result) advice(failed, unsaved, others []string) (lines []string) {
	did := map[string]string{"install": "accept " + r.Key, "use": "send with " + r.Key, "remove": "have dropped " + r.Key}[r.Step]
	switch {
	case len(failed) > 0:
		lines = append(lines,
			fmt.Sprintf("The step failed at %s: repeat the command, or change the key file there, before the next step.", survey.Few(failed)))
	case r.Step == "install":
		lines = append(lines, fmt.Sprintf("All %s %s. Next: roost keys --use %s", term.Plural(len(r.Agents), "agent"), did, r.Key))
	case r.Step == "use" && len(others) > 0:
		lines = append(lines, fmt.Sprintf("All %s %s. Next: roost keys --remove %s", term.Plural(len(r.Agents), "agent"), did, others[0]))
	default:
		lines = append(lines, fmt.Sprintf("All %s %s.", term.Plural(len(r.Agents), "agent"), did))
	}
	if len(unsaved) > 0 {
		lines = append(lines, fmt.Sprintf("A restart undoes this at %s: put the keys into the key file there.", survey.Few(unsaved)))
	}
	if len(r.Lost) > 0 {
		lines = append(lines,
			fmt.Sprintf("Change the key file of %s by hand before you start it again: this command does not reach lost nodes.", survey.Few(r.Lost)))
	}
	return lines
}
