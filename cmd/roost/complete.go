package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeTime is how long a shell is kept waiting after the Tab key.
const completeTime = time.Second

// finder asks an agent for what a word on the command line may be.
type finder func(context.Context, *session) []string

// suggest has shells complete a flag with what find returns.
func (p *program) suggest(cmd *cobra.Command, flag string, find finder) {
	_ = cmd.RegisterFlagCompletionFunc(flag, p.complete(find))
}

// suggestArgs has shells complete the first arguments, one finder each.
func (p *program) suggestArgs(cmd *cobra.Command, finders ...finder) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(finders) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.complete(finders[len(args)])(cmd, args, word)
	}
}

// complete asks the agent that the flags before the word name. If there is none,
// the shell completes nothing: a message would end up on the command line.
func (p *program) complete(find finder) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		s, err := p.session(cmd.Flags(), clientSettings())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		var fitting []string
		for _, found := range find(ctx, s) {
			if strings.HasPrefix(found, word) && found == printable(found) {
				fitting = append(fitting, found)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

func memberIDs(ctx context.Context, s *session) []string {
	m, err := s.Members(ctx)
	if err != nil {
		return nil
	}
	ids := make([]string, len(m.Members))
	for i := range m.Members {
		ids[i] = string(m.Members[i].ID)
	}
	return ids
}

func roomNames(ctx context.Context, s *session) []string {
	list, err := s.Rooms(ctx, "", 0)
	if err != nil {
		return nil
	}
	names := make([]string, len(list.Rooms))
	for i := range list.Rooms {
		names[i] = list.Rooms[i].Room
	}
	return names
}

// completeValue has shells complete the value of a setting's flag: one of a few
// words, the name of a file, or nothing that they know of. Ids of nodes are left
// to suggest.
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
