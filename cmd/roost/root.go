package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errUsage marks errors that the user mends on the command line, in the
// environment or in the configuration file.
var errUsage = errors.New("usage")

// errInterrupted ends a program that was told to stop before it was done.
var errInterrupted error = exitError(exitInterrupted)

// errReported marks errors that the user has been shown already.
var errReported error = exitError(exitFailed)

// program is what the commands share.
type program struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer

	begun bool // a command runs: what fails from here on is no matter of usage
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{getenv: getenv, stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would stand for this process's own
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	complain(stderr, strings.TrimSpace(err.Error()))
	if p.begun && !errors.Is(err, errUsage) {
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "See `%s --help`.\n", cmd.CommandPath())
	return exitUsage
}

// credentials are what a URL has before its host.
var credentials = regexp.MustCompile(`(://)[^\s"'` + "`" + `]*@`)

// redacted hides them: a URL with a password may have been typed where another
// thing was expected, and messages quote what they complain about.
func redacted(text string) string { return credentials.ReplaceAllString(text, "$1…@") }

const rootLong = `roost tells a fleet of nodes which of them owns which key, without a central store.

Each node runs an agent, inside your program (package cluster) or beside it
(roost agent). The agents gossip; each knows who lives and computes the same
table of owners.`

const rootExample = `  roost demo                                   watch a cluster grow, crash and drain
  roost agent --id a --bind 127.0.0.1:7946     run the first node
  roost agent --id b --bind 127.0.0.1:7947 --join 127.0.0.1:7946 --http 127.0.0.1:8402
  roost members                                who is there
  roost place room-17                          who owns the key room-17`

const completionExample = `  roost completion bash > /etc/bash_completion.d/roost
  roost completion zsh > "${fpath[1]}/_roost"
  roost completion fish > ~/.config/fish/completions/roost.fish`

const rootNotes = `
Each flag has an environment variable, ROOST_ and its name in capitals:
--http-token-file is ROOST_HTTP_TOKEN_FILE. A flag overrides its variable.
What is planned with roost plan is told by flags alone.

Exit codes:
`

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "roost",
		Short:         "Who owns which key, agreed by gossip",
		Long:          rootLong,
		Example:       rootExample,
		Version:       versionLine(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.begun = true
		},
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout) // completion writes to what is set when it is made
	root.SetErr(p.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "ask", Title: "Ask an agent:"},
		&cobra.Group{ID: "health", Title: "See how a cluster is:"},
		&cobra.Group{ID: "tell", Title: "Tell an agent:"},
		&cobra.Group{ID: "compare", Title: "Compare tables of owners:"},
		&cobra.Group{ID: "more", Title: "More:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			cmd.DisableFlagsInUseLine = true
			root.AddCommand(cmd)
		}
	}
	add("run", p.demoCommand(), p.agentCommand(), p.keygenCommand())
	add("ask", p.membersCommand(), p.partitionsCommand(), p.placeCommand(), p.ownersCommand(), p.roomsCommand(), p.watchCommand())
	add("health", p.doctorCommand(), p.topCommand())
	add("compare", p.planCommand(), p.diffCommand())
	add("tell", p.drainCommand(), p.undrainCommand(), p.leaveCommand(), p.weightCommand(), p.roomCommand())
	add("more", p.versionCommand(), exitCodesTopic())
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Short, completion.Example = "Make completion for bash, zsh, fish or PowerShell", completionExample
		// Else the help would end up in the file that was to hold the script.
		completion.Args, completion.RunE = cobra.ArbitraryArgs, func(*cobra.Command, []string) error {
			return usageError{"for which shell? one of bash, zsh, fish, powershell"}
		}
	}
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			_, _, err := root.Find(args)
			return err
		}
	}
	wrapped := strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 100")
	root.SetUsageTemplate(wrapped + "{{if not .HasParent}}" + rootNotes + exitCodeTable() + "{{end}}")
	return root
}

// flagError adds to a misspelt flag those that resemble it.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), names, "--"))
}

// faulty joins what is wrong with the usage into one error, or returns nil.
func faulty(faults []error) error {
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return usageError{faults[0].Error()}
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%d faults:", len(faults))
	for _, f := range faults {
		_, _ = fmt.Fprintf(&b, "\n  %v", f)
	}
	return usageError{b.String()}
}

type usageError struct{ text string }

// Error implements error.
func (e usageError) Error() string { return e.text }

// Is makes it an errUsage.
func (e usageError) Is(target error) bool { return target == errUsage }
