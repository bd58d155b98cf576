package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. See exitCodes for what they mean.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitWarned      = 3
	exitBroken      = 4
	exitInterrupted = 130 // what shells report for an interrupted program
)

// exitCodes is all that a script may rely on.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done; of roost doctor: all is well"},
	{exitFailed, "failed: no agent answers, it refused, or the agent that ran here broke off"},
	{exitUsage, "wrong usage or configuration; nothing was done"},
	{exitWarned, "roost doctor: something needs a look"},
	{exitBroken, "roost doctor: something is broken"},
	{exitInterrupted, "interrupted, or an agent that was told twice to stop"},
}

func exitCodeTable() string {
	var b strings.Builder
	for _, e := range exitCodes {
		_, _ = fmt.Fprintf(&b, "  %-4d %s\n", e.code, e.meaning)
	}
	return b.String()
}

// exitError ends the program with its code, of which the user knows why.
type exitError int

// Error implements error.
func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCodesTopic is a page of help and no command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long:  "The exit codes of roost:\n\n" + exitCodeTable() + "\nEvery failure also says on standard error what failed and what to do.",
		Example: `  roost doctor > report || [ $? -eq 3 ] || page-someone report
  roost members > members || echo no agent here`,
	}
}
