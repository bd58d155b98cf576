package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

// clientCommand completes a command that calls an agent. The command gets its own flags and the common flags.
func (p *program) clientCommand(
	cmd *cobra.Command,
	do func(context.Context, *session.Session, []string) error,
	own ...settings.Setting,
) *cobra.Command {
	o := new(session.Options)
	return p.withSession(cmd, o, append(own, o.Settings()...), do)
}

// scopedCommand is like clientCommand, with an additional flag --scope.
func (p *program) scopedCommand(
	cmd *cobra.Command,
	do func(context.Context, *session.Session, []string) error,
	own ...settings.Setting,
) *cobra.Command {
	o := new(session.Options)
	return p.withSession(cmd, o, slices.Concat(own, []settings.Setting{o.Scope()}, o.Settings()), do)
}

// localCommand completes a command that does not call an agent.
func (p *program) localCommand(cmd *cobra.Command, output string, do func(*session.Session, []string) error) *cobra.Command {
	o := new(session.Options)
	return p.withSession(cmd, o, []settings.Setting{o.Output(output)}, func(_ context.Context, s *session.Session, args []string) error {
		return do(s, args)
	})
}

func (p *program) withSession(
	cmd *cobra.Command, o *session.Options, list []settings.Setting, do func(context.Context, *session.Session, []string) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := o.Open(list, p.sources(cmd), p.stdout, p.stderr)
		if err != nil {
			return err
		}
		err = do(cmd.Context(), s, args)
		_, exits := errors.AsType[exitError](err)
		if _, usage := errors.AsType[settings.UsageError](err); err == nil || exits || usage {
			return err
		}
		return s.Explain(err)
	}
	settings.AddFlags(cmd, list)
	return cmd
}

// viewCommand completes a command that shows a view, once or, with --watch, until Ctrl-C.
func (p *program) viewCommand(cmd *cobra.Command, f *session.Viewer, own ...settings.Setting) *cobra.Command {
	return p.clientCommand(cmd, func(ctx context.Context, s *session.Session, _ []string) error {
		return f.Run(ctx, s)
	}, append(own, f.Settings()...)...)
}

// call returns a function that makes one API call and prints the answer as JSON or as a sentence.
func call[T any](
	ask func(context.Context, *session.Session, []string) (T, error),
	sentence func(T) string,
) func(context.Context, *session.Session, []string) error {
	return func(ctx context.Context, s *session.Session, args []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		answer, err := ask(ctx, s, args)
		return s.Answer(answer, err, func() string { return sentence(answer) })
	}
}

// completeTime limits how long a shell waits for completions after the Tab key.
const completeTime = time.Second

// finder asks an agent for words that the shell can offer as completions.
type finder func(context.Context, *session.Session) []string

// suggestArgs sets up completion of the first arguments, each with its own finder.
func (p *program) suggestArgs(cmd *cobra.Command, finders ...finder) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(finders) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.complete(finders[len(args)])(cmd, args, word)
	}
}

// complete asks the agent that the preceding flags name. If the agent does not answer, complete offers
// nothing, because an error message would end up on the command line.
func (p *program) complete(find finder) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) (fitting []string, _ cobra.ShellCompDirective) {
		o := new(session.Options)
		s, err := o.Open(o.Settings(), p.sources(cmd), p.stdout, p.stderr)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		for _, found := range find(ctx, s) {
			if strings.HasPrefix(found, word) && found == term.Printable(found) {
				fitting = append(fitting, found)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

func memberIDs(ctx context.Context, s *session.Session) (ids []string) {
	m, _ := s.Members(ctx)
	for _, n := range m.Members {
		ids = append(ids, string(n.ID))
	}
	return ids
}

func roomNames(ctx context.Context, s *session.Session) (names []string) {
	list, _ := s.Rooms(ctx, "", 0)
	for _, r := range list.Rooms {
		names = append(names, r.Room)
	}
	return names
}

// newsOfOwners notifies changed whenever members or owners change.
func newsOfOwners(ctx context.Context, s *session.Session, changed chan<- struct{}) {
	session.Nudge(ctx, s.Events, changed)
}

// The functions below format table cells for lists of members.

func marked(id, self lease.NodeID) string {
	if id == self {
		return string(id) + " *"
	}
	return string(id)
}

func loadOf(m clusterhttp.Member) string {
	if m.Capacity == 0 {
		return fmt.Sprint(m.Load)
	}
	return fmt.Sprintf("%d of %d", m.Load, m.Capacity)
}

func sameOrNot(inSync bool) term.Toned {
	if inSync {
		return term.Toned{Text: "same"}
	}
	return term.Toned{Text: "differs", Tone: term.Warning}
}

func stateOf(m clusterhttp.Member) term.Toned {
	tones := map[lease.State]term.Tone{
		lease.Active:   term.Good,
		lease.Settling: term.Warning,
		lease.Draining: term.Warning,
		lease.Left:     term.Bad,
	}
	return term.Toned{Text: m.Condition(), Tone: tones[m.State]}
}
