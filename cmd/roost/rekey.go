package main

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

// rekey is one step of a change of the gossip key, at the agents of all members.
type rekey struct {
	install     string // a file
	use, remove string // fingerprints

	key []byte // of install
}

func (k *rekey) settings() []settings.Setting {
	return []settings.Setting{
		{Name: "install", Arg: "FILE", FlagOnly: true, Set: settings.Nonempty(&k.install), Usage: "have all agents accept the key in FILE, too"},
		{Name: "use", Arg: "KEY", FlagOnly: true, Set: fingerprint(&k.use), Usage: "have all agents send with the key of this fingerprint"},
		{Name: "remove", Arg: "KEY", FlagOnly: true, Set: fingerprint(&k.remove), Usage: "have all agents drop the key of this fingerprint"},
	}
}

var keyPrint = regexp.MustCompile(`^[0-9a-f]{8}$`)

func fingerprint(to *string) func(string) error {
	return func(v string) error {
		if !keyPrint.MatchString(v) {
			return errors.New("want the fingerprint of a key, 8 hexadecimal digits: see roost keys")
		}
		*to = v
		return nil
	}
}

// asked returns the steps that the flags name.
func (k *rekey) asked() (steps []string) {
	for _, step := range []struct{ name, value string }{{"install", k.install}, {"use", k.use}, {"remove", k.remove}} {
		if step.value != "" {
			steps = append(steps, step.name)
		}
	}
	return steps
}

// rekeyed is the answer of a step as JSON.
type rekeyed struct {
	Step   string         `json:"step"` // install, use or remove
	Key    string         `json:"key"`  // its fingerprint
	Agents []rekeyedAgent `json:"agents"`
	Lost   []lease.NodeID `json:"lost"` // members that have gone without leaving, and may come back with their former keys
}

type rekeyedAgent struct {
	ID      lease.NodeID `json:"id"`
	HTTP    string       `json:"http,omitempty"`
	Keys    []string     `json:"keys,omitempty"`
	Unsaved string       `json:"unsaved,omitempty"` // why its restart undoes the step
	Fault   string       `json:"fault,omitempty"`   // why it did not take the step
}

// run takes the step at the agent of s, and then at all others. If the first one refuses, no other is asked.
func (k *rekey) run(ctx context.Context, s *session.Session) error {
	steps := k.asked()
	if len(steps) > 1 {
		return settings.UsageError("--" + strings.Join(steps, " and --") + ": the steps need time in between, so give one at a time")
	}
	if err := k.readKey(s); err != nil {
		return err
	}
	if err := k.withheld(s); err != nil {
		return settings.UsageError(err.Error())
	}
	answer := rekeyed{Step: steps[0], Key: k.use + k.remove, Lost: []lease.NodeID{}}
	if k.key != nil {
		answer.Key = cluster.KeyFingerprint(k.key)
	}
	m, err := membersOf(ctx, s)
	if err != nil {
		return err
	}
	for _, l := range m.Lost {
		if l.Reason != lease.Departed {
			answer.Lost = append(answer.Lost, l.ID)
		}
	}
	first, err := k.take(ctx, s)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	done := map[lease.NodeID]clusterhttp.Keys{first.Self: first}
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
		return err
	}
	if m, err = membersOf(ctx, s); err != nil {
		return err
	}
	for _, a := range agents {
		r := rekeyedAgent{ID: a.ID, HTTP: a.HTTP, Keys: done[a.ID].Keys, Unsaved: done[a.ID].Unsaved, Fault: a.Fault}
		// A member without an HTTP API may have got the step by its key file.
		if i := slices.IndexFunc(m.Members, func(n clusterhttp.Member) bool { return n.ID == a.ID }); r.Fault != "" && i >= 0 && answer.doneBy(m.Members[i].Keys) {
			r.Keys, r.Fault = m.Members[i].Keys, ""
		}
		answer.Agents = append(answer.Agents, r)
	}
	return answer.print(s)
}

func membersOf(ctx context.Context, s *session.Session) (clusterhttp.Members, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	return s.Members(ctx)
}

// doneBy reports whether a member with these keys has taken the step.
func (r rekeyed) doneBy(keys []string) bool {
	switch r.Step {
	case "install":
		return slices.Contains(keys, r.Key)
	case "use":
		return len(keys) > 0 && keys[0] == r.Key
	}
	return len(keys) > 0 && !slices.Contains(keys, r.Key)
}

// readKey reads the key to install.
func (k *rekey) readKey(s *session.Session) error {
	if k.install == "" {
		return nil
	}
	keys, warning, err := settings.Keys(k.install)
	if warning != "" {
		term.Complain(s.Fault, "warning: "+warning)
	}
	switch {
	case err != nil:
		return settings.UsageError(fmt.Sprintf("--install %q: %v", k.install, err))
	case len(keys) > 1:
		return settings.UsageError(fmt.Sprintf("--install %q: the file has %d keys: give a file with the new key alone", k.install, len(keys)))
	}
	k.key = keys[0]
	return nil
}

// withheld says why the agent is not sent the key of install, if that is so.
func (k *rekey) withheld(s *session.Session) error {
	if why := s.Withheld(); why != "" && k.key != nil {
		return fmt.Errorf("the agent at %s was not sent the key, %s", s.Addr, why)
	}
	return nil
}

// spread is how long the members may take to learn of each other's last step.
const spread = 5 * time.Second

// take takes the step at one agent. It waits for what the agent has to learn of other members first.
func (k *rekey) take(ctx context.Context, s *session.Session) (clusterhttp.Keys, error) {
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
			return keys, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return clusterhttp.Keys{}, early
		}
	}
}

func (k *rekey) call(ctx context.Context, s *session.Session) (clusterhttp.Keys, error) {
	switch {
	case k.use != "":
		return s.UseKey(ctx, k.use)
	case k.remove != "":
		return s.RemoveKey(ctx, k.remove)
	}
	return s.InstallKey(ctx, k.key)
}

func (r rekeyed) print(s *session.Session) error {
	var failed, unsaved, others []string
	for _, a := range r.Agents {
		switch {
		case a.Fault != "":
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
		end = exitError(exitFailed)
	}
	if s.JSON {
		return errors.Join(s.PrintJSON(r), end)
	}
	err := s.Table("AGENT\tSENDS WITH\tACCEPTS\tNOTE", func(row func(...any)) {
		for _, a := range r.Agents {
			switch {
			case a.Fault != "":
				row(a.ID, "?", "?", term.Toned{Text: a.Fault, Tone: term.Bad})
			case a.Unsaved != "":
				row(a.ID, a.Keys[0], term.OrDash(strings.Join(a.Keys[1:], " ")), term.Toned{Text: "not saved: " + a.Unsaved, Tone: term.Warning})
			default:
				row(a.ID, a.Keys[0], term.OrDash(strings.Join(a.Keys[1:], " ")), "")
			}
		}
	}, "\n"+strings.Join(r.advice(failed, unsaved, others), "\n")+"\n")
	return errors.Join(err, end)
}

// advice says what the step has come to, and what to do next.
func (r rekeyed) advice(failed, unsaved, others []string) (lines []string) {
	did := map[string]string{"install": "accept " + r.Key, "use": "send with " + r.Key, "remove": "have dropped " + r.Key}[r.Step]
	switch {
	case len(failed) > 0:
		lines = append(lines, fmt.Sprintf("Not done at %s: repeat the command, or change the key file there, before the next step.", fewWords(failed)))
	case r.Step == "install":
		lines = append(lines, fmt.Sprintf("All %s %s. Next: roost keys --use %s", term.Plural(len(r.Agents), "agent"), did, r.Key))
	case r.Step == "use" && len(others) > 0:
		lines = append(lines, fmt.Sprintf("All %s %s. Next: roost keys --remove %s", term.Plural(len(r.Agents), "agent"), did, others[0]))
	default:
		lines = append(lines, fmt.Sprintf("All %s %s.", term.Plural(len(r.Agents), "agent"), did))
	}
	if len(unsaved) > 0 {
		lines = append(lines, fmt.Sprintf("A restart undoes this at %s: put the keys into the key file there.", fewWords(unsaved)))
	}
	if len(r.Lost) > 0 {
		lines = append(lines, fmt.Sprintf("Change the key file of %s by hand before a start: the node was lost, and could not be asked.", fewOf(r.Lost)))
	}
	return lines
}

func fewWords(ids []string) string {
	nodes := make([]lease.NodeID, len(ids))
	for i, id := range ids {
		nodes[i] = lease.NodeID(id)
	}
	return fewOf(nodes)
}
