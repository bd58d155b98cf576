package main

import (
	"fmt"
	"strings"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/spf13/cobra"
)

const rootLong = `roost tells every node of a fleet which node owns a key. All nodes give the same
answer, without a central store.

Each node runs an agent, inside your program (package cluster) or next to it
(roost agent). The agents gossip, so each agent knows the live nodes and computes
the same table of owners.`

const rootExample = `  roost demo                                   watch a cluster grow, crash and drain
  roost agent --id a --bind 127.0.0.1:7946     run the first node
  roost agent --id b --bind 127.0.0.1:7947 --join 127.0.0.1:7946 --http 127.0.0.1:8402
  roost members                                who is there
  roost place room-17                          who owns the key room-17`

const completionExample = `  roost completion bash > /etc/bash_completion.d/roost
  roost completion zsh > "${fpath[1]}/_roost"
  roost completion fish > ~/.config/fish/completions/roost.fish`

const rootNotes = `
Environment variables set the same values as flags: ROOST_HTTP_TOKEN_FILE is
--http-token-file. A flag overrides its variable. Only flags set values for a
single call, such as --for of roost cordon and all flags of roost plan and roost sim.

Exit codes:
`

// helpWidth is the maximum width of the help, in columns.
const helpWidth = 100

// addHelp adds the help and completion commands.
func addHelp(root *cobra.Command) {
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Short, completion.Example = "Print a completion script for bash, zsh, fish or PowerShell", completionExample
		// Without this, a missing or mistyped shell name would write the help into the script file.
		completion.Args, completion.RunE = cobra.ArbitraryArgs, func(*cobra.Command, []string) error {
			return settings.UsageError("the shell is missing: bash, zsh, fish or powershell")
		}
	}
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			_, _, err := root.Find(args)
			return err
		}
	}
	root.SetUsageFunc(usage)
}

// usage prints the usage of cmd. The usage does not come from a template of cobra, because templates call
// methods by name. With a template, the linker keeps all exported methods, which makes the binary 13 MB
// larger.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	usageHead(&b, cmd)
	for _, g := range cmd.Groups() {
		_, _ = fmt.Fprintf(&b, "\n%s\n", g.Title)
		listCommands(&b, cmd, func(c *cobra.Command) bool { return c.GroupID == g.ID })
	}
	if cmd.HasAvailableSubCommands() && len(cmd.Groups()) == 0 {
		b.WriteString("\nAvailable Commands:\n")
		listCommands(&b, cmd, func(*cobra.Command) bool { return true })
	}
	_, _ = fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(helpWidth))
	if cmd.HasHelpSubCommands() {
		b.WriteString("\nAdditional help topics:\n")
		for _, c := range cmd.Commands() {
			if c.IsAdditionalHelpTopicCommand() {
				_, _ = fmt.Fprintf(&b, "  %s %s\n", c.CommandPath(), c.Short)
			}
		}
	}
	if cmd.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(&b, "\nUse %q for more information about a command.\n", cmd.CommandPath()+" [command] --help")
	}
	if !cmd.HasParent() {
		b.WriteString(rootNotes + exitCodeTable())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

func usageHead(b *strings.Builder, cmd *cobra.Command) {
	b.WriteString("Usage:\n")
	if cmd.Runnable() && cmd.HasParent() {
		_, _ = fmt.Fprintf(b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(b, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		_, _ = fmt.Fprintf(b, "\nExamples:\n%s\n", cmd.Example)
	}
}

func listCommands(b *strings.Builder, of *cobra.Command, listed func(*cobra.Command) bool) {
	for _, c := range of.Commands() {
		if listed(c) && (c.IsAvailableCommand() || c.Name() == "help") {
			_, _ = fmt.Fprintf(b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
}

// usageOfAgent prints the usage of roost agent, with the flags of the given groups.
func usageOfAgent(cmd *cobra.Command, shown []settings.Group, rest string) error {
	var b strings.Builder
	usageHead(&b, cmd)
	for _, g := range shown {
		var flags cobra.Command
		settings.AddFlags(&flags, g.Settings)
		_, _ = fmt.Fprintf(&b, "\n%s:\n%s", g.Title, flags.Flags().FlagUsagesWrapped(helpWidth))
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String()+rest)
	return err
}

// takes requires exactly one argument for each name. If the last name ends in "...", more arguments are
// allowed at the end.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		more := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
		switch usage := strings.TrimSuffix(cmd.UseLine(), " [flags]"); {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing: %s", strings.TrimSuffix(names[len(args)], "..."), usage)
		case len(args) > len(names) && !more:
			return fmt.Errorf("unexpected argument %q: %s", args[len(names)], usage)
		}
		return nil
	}
}
