package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestPlanAndDiff runs the script testdata/plan, which contains the expected output of roost plan and roost diff. The
// script uses these commands:
//
//	agent nodes=(a,b) [partitions=8] [strategy=modulo] [as=mine] [diverged=1]
//	             set what the agent answers from now on; as sets the name of its strategy
//	write NAME   write the agent's answer to a file, as roost partitions --output json does
//	text NAME    write the input to a file
//	roost        run the input as a command; < NAME makes the command read a file
func TestPlanAndDiff(t *testing.T) {
	s := planStory{dir: t.TempDir()}
	f := fakeagent.New(t)
	f.Set("GET /v1/partitions", func(int) any { return s.answer })
	s.env = map[string]string{"ROOST_ADDR": f.Env["ROOST_ADDR"], "ROOST_WEIGHT": "7", "ROOST_PARTITIONS": "7", "ROOST_STRATEGY": "none"}
	datadriven.RunTest(t, "testdata/plan", s.run)
}

type planStory struct {
	dir    string
	env    map[string]string // a plan ignores the settings of agents
	answer clusterhttp.Partitions
}

func (s *planStory) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "agent":
		s.agent(t, d)
	case "write":
		b, err := json.Marshal(s.answer)
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, d, b)
	case "text":
		s.write(t, d, []byte(d.Input))
	case "roost":
		return s.roost(t, d.Input)
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return ""
}

func (s *planStory) write(t *testing.T, d *datadriven.TestData, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, d.CmdArgs[0].Key), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *planStory) agent(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	in := placement.Input{Partitions: 32}
	d.MaybeScanArgs(t, "partitions", &in.Partitions)
	strategy := "rendezvous"
	d.MaybeScanArgs(t, "strategy", &strategy)
	var err error
	if in.Strategy, err = placement.ParseStrategy(strategy); err != nil {
		t.Fatal(err)
	}
	if d.HasArg("as") {
		as := called{Strategy: in.Strategy}
		d.ScanArgs(t, "as", &as.name)
		in.Strategy = as
	}
	for _, arg := range d.CmdArgs {
		for _, id := range arg.Vals {
			if arg.Key == "nodes" {
				in.Nodes = append(in.Nodes, placement.Node{ID: lease.NodeID(id), Weight: 100})
			}
		}
	}
	s.answer = fakeagent.Partitions(in, 3)
	d.MaybeScanArgs(t, "diverged", &s.answer.Diverged)
}

// called is a strategy with another name, such as a user's own strategy.
type called struct {
	placement.Strategy
	name string
}

func (c called) Name() string { return c.name }

func (s *planStory) roost(t *testing.T, line string) string {
	t.Helper()
	line, file, _ := strings.Cut(line, "<")
	args := strings.Fields(line)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "DIR", s.dir)
	}
	var stdin []byte
	if file != "" {
		var err error
		if stdin, err = os.ReadFile(filepath.Join(s.dir, strings.TrimSpace(file))); err != nil {
			t.Fatal(err)
		}
	}
	var out, problem strings.Builder
	getenv := func(name string) string { return s.env[name] }
	code := run(t.Context(), args, getenv, strings.NewReader(string(stdin)), &out, &problem)
	text := strings.ReplaceAll(out.String()+problem.String(), s.dir, "DIR")
	if code != 0 {
		text += fmt.Sprintf("exit %d\n", code)
	}
	// An empty line would end the expected output.
	return strings.ReplaceAll(text, "\n\n", "\n.\n")
}
