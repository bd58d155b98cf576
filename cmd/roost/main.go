// Command roost runs a node of a cluster, and asks running nodes which node owns what. `roost --help` lists
// the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // for machines without root certificates, such as containers of our image
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// These are the exit codes. The variable exitCodes explains them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitWarned      = 3
	exitBroken      = 4
	exitInterrupted = 130 // as shells report for an interrupted program
)

// exitCodes documents the exit codes that scripts can rely on.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "success; for roost doctor: all checks are ok"},
	{exitFailed, "failure: no agent answered, the agent refused, or the agent that ran here failed"},
	{exitUsage, "wrong usage or configuration; roost did nothing"},
	{exitWarned, "roost doctor: something needs a look"},
	{exitBroken, "roost doctor: something is broken"},
	{exitInterrupted, "interrupted, or an agent received a second signal to stop"},
}

func exitCodeTable() string {
	var b strings.Builder
	for _, e := range exitCodes {
		_, _ = fmt.Fprintf(&b, "  %-4d %s\n", e.code, e.meaning)
	}
	return b.String()
}

// exitError makes the program exit with this code. It prints no message, because the user has already seen the reason.
type exitError int

// Error implements the error interface.
func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCodesTopic is a help page, not a command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long:  "The exit codes of roost:\n\n" + exitCodeTable() + "\nOn a failure, roost also prints to standard error what failed and what to do.",
		Example: `  roost doctor > report || [ $? -eq 3 ] || page-someone report
  roost members > members || echo no agent here`,
	}
}

// program is the state that all commands share.
type program struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer

	begun bool // a command has started, so errors are no longer usage errors
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{getenv: getenv, stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil means the arguments of this process
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	term.Complain(stderr, strings.TrimSpace(err.Error()))
	if _, usage := errors.AsType[settings.UsageError](err); p.begun && !usage {
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "See `%s --help`.\n", cmd.CommandPath())
	return exitUsage
}

func (p *program) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:           "roost",
		Short:         "Find out which node owns a key, agreed by gossip",
		Long:          rootLong,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.begun = true
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintln(p.stdout, buildOf())
				return err
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version")
	root.SetIn(p.stdin)
	root.SetOut(p.stdout) // set before the completion command is added, which keeps a copy
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(flagError)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run:", []*cobra.Command{p.demoCommand(), p.agentCommand(), p.proxyCommand(), p.simCommand(), p.keygenCommand()}},
		{"ask", "Ask an agent:", []*cobra.Command{
			p.membersCommand(), p.keysCommand(), p.partitionsCommand(), p.placeCommand(), p.ownersCommand(),
			p.roomsCommand(), p.reservationsCommand(), p.watchCommand(), p.historyCommand(),
		}},
		{"health", "Check a cluster:", []*cobra.Command{p.doctorCommand(), p.topCommand()}},
		{"change", "Change a node:", []*cobra.Command{
			p.drainCommand(), p.undrainCommand(), p.leaveCommand(), p.weightCommand(), p.cordonCommand(),
			p.uncordonCommand(), p.healthCommand(), p.roomCommand(),
		}},
		{"compare", "Compare tables of owners:", []*cobra.Command{p.planCommand(), p.diffCommand()}},
		{"more", "More:", []*cobra.Command{p.versionCommand(), exitCodesTopic()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID, cmd.DisableFlagsInUseLine = g.id, true
			root.AddCommand(cmd)
		}
	}
	addHelp(root)
	return root
}

// flagError adds a hint to the error about an unknown flag: the flags with similar names.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, settings.DidYouMean(unknown.GetSpecifiedName(), names, "--"))
}

// sources returns the sources of the settings of cmd.
func (p *program) sources(cmd *cobra.Command) settings.Sources {
	return settings.Sources{Flags: cmd.Flags(), Getenv: p.getenv}
}

// withSettings completes a command that has settings but does not call an agent.
func (p *program) withSettings(cmd *cobra.Command, list []settings.Setting, do func(context.Context) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Resolve(list, p.sources(cmd)); err != nil {
			return err
		}
		return do(cmd.Context())
	}
	settings.AddFlags(cmd, list)
	return cmd
}
