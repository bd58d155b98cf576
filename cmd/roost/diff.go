package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/placement"
	"github.com/spf13/cobra"
)

const changesLong = `Beside the moves stands the expected minimum: what has to move, whatever the
strategy, so that nodes which are gone have nothing and those that came, or weigh
more, get their fair share.`

func (p *program) diffCommand() *cobra.Command {
	settings := []setting[clientOptions]{outputSetting("json prints every move, the expected minimum, and the balance before and after")}
	cmd := &cobra.Command{
		Use:   "diff OLD NEW [flags]",
		Short: "Compare two tables: what moved from whom to whom",
		Long: `Compare two tables of owners, as roost partitions --output json prints them: what
moved from whom to whom, and how even it was before and is now. OLD and NEW are
files; - is the standard input.

` + changesLong,
		Example: `  roost partitions --output json > before.json
  roost partitions --output json | roost diff before.json -
  roost diff before.json after.json --output json | jq '.moves | length'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.session(cmd.Flags(), settings)
			if err != nil {
				return err
			}
			if args[0] == "-" && args[1] == "-" {
				return usageError{"OLD and NEW are both the standard input: give a file for one of them"}
			}
			before, err := p.readTable(args[0])
			if err != nil {
				return err
			}
			after, err := p.readTable(args[1])
			if err != nil {
				return err
			}
			return s.printChanges(change{before: before.table, after: after.table, was: before.Strategy, is: after.Strategy})
		},
	}
	addFlags(cmd, settings)
	cmd.Flags().SortFlags = false
	return cmd
}

// snapshot is a table, and the document that it was read from.
type snapshot struct {
	clusterhttp.Partitions
	table *placement.Table
}

// maxTable bounds what is read of a file, in bytes. The largest table that a
// cluster can have takes some 10 MB.
const maxTable = 32 << 20

// readTable reads what roost partitions --output json has printed.
func (p *program) readTable(path string) (snapshot, error) {
	b, err := p.readFile(path)
	if err != nil {
		return snapshot{}, err
	}
	var s snapshot
	if err := json.Unmarshal(b, &s.Partitions); err != nil {
		return s, notATable(path, err)
	}
	if s.table, err = s.Table(); err != nil {
		return s, notATable(path, err)
	}
	return s, nil
}

func notATable(path string, err error) error {
	reason := strings.TrimPrefix(err.Error(), "placement: import: ")
	return fmt.Errorf("%s: %s\nwrite tables with: roost partitions --output json > FILE", nameOf(path), reason)
}

func (p *program) readFile(path string) ([]byte, error) {
	in := p.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxTable+1))
	if err == nil && len(b) > maxTable {
		err = fmt.Errorf("it has more than %d MB, more than any table", maxTable>>20)
	}
	if err == nil && len(b) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, notATable(path, err)
	}
	return b, nil
}

func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return printable(path)
}
