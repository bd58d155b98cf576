package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/roost-cluster/roost/cmd/roost/internal/serve"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/spf13/cobra"
)

const agentLong = `Run one node until it is told to stop.

Once the node has joined, it logs "agent running" with its addresses, so you can use
port 0 for --bind and --http.

On SIGTERM or SIGINT the node fails /readyz, gives up what it owns, leaves the cluster
and exits with 0, within --shutdown-delay plus 25 s. A second signal stops it at once
(exit code 130). The agent also exits with 0 after roost leave, and with 1 if it cannot
start or if another process takes its id.

The agent reloads its settings on SIGHUP, and within 4 s after one of its files has
changed. Seeds, keys, tokens, TLS files, the log level, and the user and password for
Redis change at once. The log names changed settings that need a restart. If any
setting is invalid, the agent applies none, and roost doctor shows the error.

A flag overrides its environment variable, which overrides the --config file, which
overrides the default. For example, the file can contain:

  id: node-a
  join: [10.0.0.1:7946, 10.0.0.2:7946]
  label: {rack: r1}`

func (p *program) agentCommand() *cobra.Command {
	hostName, _ := os.Hostname() // if there is none, --id is required
	groups := new(settings.Agent).Groups()
	helpAll := false
	cmd := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Run one node of a cluster",
		Long:  agentLong,
		Example: `  roost agent --id a
  roost agent --id b --bind 127.0.0.1:7947 --http 127.0.0.1:8402 --join 127.0.0.1:7946
  ROOST_JOIN=10.0.0.1:7946 roost agent --bind 0.0.0.0:7946 --key-file roost.key`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if helpAll {
				cmd.SetUsageFunc(func(cmd *cobra.Command) error { return usageOfAgent(cmd, groups, "") })
				return cmd.Help()
			}
			load := func() (settings.Agent, error) { return settings.LoadAgent(p.sources(cmd), hostName) }
			a, err := load()
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(a.LogLevel)
			log, endLog := serve.NewLogger(p.stderr, a.LogFormat, level)
			defer endLog()
			for _, w := range a.Warnings {
				log.Warn("risky configuration", "why", w)
			}
			err = serve.Run(cmd.Context(), a, p.stdin, log, serve.Reloading{Load: load, Level: level})
			switch {
			case errors.Is(err, serve.ErrInterrupted):
				return exitError(exitInterrupted)
			case err != nil: // logged, so that the output has the same format until the end
				log.Error("agent failed", "node", a.Cluster.ID, "err", err)
				return exitError(exitFailed)
			}
			return nil
		},
	}
	settings.AddFlags(cmd, new(settings.Agent).Settings())
	cmd.Flags().BoolVar(&helpAll, "help-all", false, "show the help with all flags")
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		return usageOfAgent(cmd, groups[:2], "\nFor HTTP, timing and advanced flags, run: roost agent --help-all\n")
	})
	_ = cmd.RegisterFlagCompletionFunc("id", cobra.NoFileCompletions) // the user chooses the id
	return cmd
}
