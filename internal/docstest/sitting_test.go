//go:build linux

package docstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/redistest"
)

// timeout limits every wait. It is not a test of speed.
const timeout = time.Minute

// substitutions are the differences between the lines of a page and the lines that run. In addition, each address is
// replaced with a free port on loopback, and port 6379 with a real Redis.
var substitutions = []struct {
	page *regexp.Regexp
	test string
}{
	// go run exits with 1 after Ctrl-C and hides the exit code of its application.
	{regexp.MustCompile(`\bgo run \./examples/(\w+)`), `go build -C "$$ROOT" -o "$$PWD/" ./examples/$1 && ./$1`},
	{regexp.MustCompile(`\bgo (list|doc) `), `go $1 -C "$$ROOT" `},
	{regexp.MustCompile(`\bcurl `), `curl -sS `}, // no progress is shown on a terminal
	{regexp.MustCompile(`\bnode (?:examples/sidecar/)?server`), `node "$$ROOT/examples/sidecar/server`},
	{regexp.MustCompile(`server\.mjs`), `server.mjs"`},
	{regexp.MustCompile(`\bmake `), `make -n -C "$$ROOT" `},                                          // prints the commands
	{regexp.MustCompile(`\broost agent`), `roost agent --bind 127.0.0.1:7946 --http 127.0.0.1:8401`}, // a later flag overrides an earlier flag
	{regexp.MustCompile(`\broost demo`), `roost demo --http 127.0.0.1:8400`},
	{regexp.MustCompile(`\broost proxy`), `roost proxy --listen 127.0.0.1:8080`},
	{regexp.MustCompile(`^roost top.*`), `TERM=xterm script -qec 'stty rows 40 cols 120; $0' /dev/null`}, // it needs a terminal
	{regexp.MustCompile(`\bjq `), `jq --unbuffered `},                                                    // as on a terminal
	{regexp.MustCompile(`\bredis-cli config`), `redis-cli -u URL config`},
	{regexp.MustCompile(`\bURL\b`), `redis://127.0.0.1:6379`},
	{regexp.MustCompile(` /etc/`), ` ./`},
	{regexp.MustCompile(`--over 1m`), `--over 1s`},
	{regexp.MustCompile(`^kubectl `), `echo kubectl `}, // there is no Kubernetes
}

var address = regexp.MustCompile(`\b(?:127\.0\.0\.1|0\.0\.0\.0|10\.0\.0\.\d+):(\d+)\b`)

var isAgent = regexp.MustCompile(`^(\S+=\S+ )*roost agent `)

// rules say how commands run on all pages. The first rule that matches counts.
var rules = []struct {
	command *regexp.Regexp
	stays   *regexp.Regexp // the output that shows that the command runs; it runs until Ctrl-C
	codes   []int          // the exit codes; -1 stands for a signal
}{
	{isAgent, regexp.MustCompile(`agent running`), []int{0}},
	{regexp.MustCompile(`^roost proxy`), regexp.MustCompile(`proxy running`), []int{0}},
	{regexp.MustCompile(`^roost demo`), regexp.MustCompile(`(?m)^2\. `), []int{130}}, // before that, Ctrl-C may hit an agent that was just forked
	{regexp.MustCompile(`^roost top`), regexp.MustCompile(`\S`), []int{0}},
	{regexp.MustCompile(`^roost watch|^roost .*--watch|^curl -N`), regexp.MustCompile(`\S`), []int{-1}},
	{regexp.MustCompile(` &$|\bnode \S+js$`), regexp.MustCompile(``), []int{0, -1}},
	{regexp.MustCompile(`^roost doctor`), nil, []int{0, 3}}, // the cluster of a page has findings
	{regexp.MustCompile(``), nil, []int{0}},
}

// A sitting is the work of one reader in one directory.
type sitting struct {
	t         *testing.T
	dir       string
	env       []string
	exports   string
	redis     *redistest.Server
	ports     map[string]string // by address on the page
	terminals []*terminal
}

// newSitting starts in an empty directory. bin is the directory of the binary.
func newSitting(t *testing.T, bin string) *sitting {
	t.Helper()
	s := &sitting{t: t, dir: t.TempDir(), ports: make(map[string]string)}
	s.env = slices.DeleteFunc(agentproc.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	tree, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(
		s.env, "PATH="+bin+":"+os.Getenv("PATH"), "ROOT="+tree+"/"+root,
		"ROOST_ADDR="+s.literal("127.0.0.1:8401"),
	)
	return s
}

// sit runs the blocks, and then ends all processes.
func (s *sitting) sit(blocks []block) error {
	for _, b := range blocks {
		if b.norun != "" || len(b.commands) == 0 {
			continue
		}
		try := func() error { return s.run(b) }
		err := try()
		if b.retry && err != nil {
			err = eventually(try)
		}
		if err != nil {
			return err
		}
	}
	for _, term := range slices.Backward(s.terminals) {
		if err := term.ctrlC(); err != nil {
			return err
		}
	}
	return nil
}

// run runs a block once.
func (s *sitting) run(b block) error {
	var printed []func() string // by each command
	for _, c := range b.commands {
		out, err := s.command(c.line, b.stays)
		if err == nil {
			err = s.prints(c.line, c.shows, b.retry, out)
		}
		if err != nil {
			return err
		}
		printed = append(printed, out)
	}
	return s.prints(fmt.Sprintf("the block of %q", b.commands[0].line), b.text, b.retry, printed...)
}

// command runs one line. out returns the output so far.
func (s *sitting) command(line string, stays bool) (out func() string, err error) {
	if strings.HasPrefix(line, "# Ctrl-C") {
		return func() string { return "" }, s.end(line)
	}
	for _, rule := range rules {
		if !rule.command.MatchString(line) {
			continue
		}
		if rule.stays != nil {
			return s.open(line, rule.stays, rule.codes)
		} else if stays {
			return s.open(line, regexp.MustCompile(``), []int{0, -1})
		}
		out, code := s.bash(s.literal(line))
		if !slices.Contains(rule.codes, code) {
			err = fmt.Errorf("%s: exits with %d, want %v:\n%s", line, code, rule.codes, out)
		}
		return func() string { return out }, err
	}
	panic("the last rule matches all lines")
}

// prints waits until the commands have printed the output that the page shows. Commands with & print to the same
// terminal.
func (s *sitting) prints(what, shown string, retry bool, printed ...func() string) error {
	if shown == "" {
		return nil
	}
	want := regexp.MustCompile(s.pattern(shown))
	var out string
	try := func() error {
		out = ""
		for _, p := range printed {
			out += p()
		}
		for _, term := range s.terminals {
			if strings.HasSuffix(term.line, " &") {
				out += term.Log.String()
			}
		}
		if !want.MatchString(out) {
			return fmt.Errorf("%s: prints\n%s\nwant a match of %s", what, out, want)
		}
		return nil
	}
	if retry || len(s.terminals) == 0 { // no running process could print more
		return try()
	}
	return eventually(try)
}

const pause = 20 * time.Millisecond

func eventually(try func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

var (
	number = regexp.MustCompile(`\d{10,}`)
	space  = regexp.MustCompile(`\s+`)
)

// pattern returns a regular expression for the output that a page shows.
func (s *sitting) pattern(shown string) string {
	shown = regexp.QuoteMeta(s.addresses(strings.TrimSpace(shown)))
	shown = number.ReplaceAllString(shown, `\d+`)
	return "(?s)" + space.ReplaceAllString(strings.ReplaceAll(shown, "…", ".*"), `\s*`)
}

func (s *sitting) bash(script string) (out string, code int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	cmd := s.process(ctx, script)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", script, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// remains matches lines that affect later lines.
var remains = regexp.MustCompile(`^(?:export |declare |[\w-]+\(\) )`)

func (s *sitting) process(ctx context.Context, script string) *exec.Cmd {
	if remains.MatchString(script) {
		s.exports += script + "\n"
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", s.exports+script)
	cmd.Dir, cmd.Env = s.dir, s.env
	// As in a terminal, Ctrl-C goes to a process group. With Pdeathsig, the process ends with the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// literal returns the line that runs instead of a line of a page.
func (s *sitting) literal(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		for _, sub := range substitutions {
			lines[i] = sub.page.ReplaceAllString(lines[i], sub.test)
		}
	}
	return s.addresses(strings.Join(lines, "\n"))
}

func (s *sitting) addresses(text string) string {
	return address.ReplaceAllStringFunc(text, func(addr string) string {
		if strings.HasSuffix(addr, ":6379") {
			if s.redis == nil {
				s.redis = redistest.Start(s.t)
			}
			return s.redis.Addr()
		}
		if s.ports[addr] == "" {
			s.ports[addr] = fmt.Sprint("127.0.0.1:", redistest.FreePort(s.t))
		}
		return s.ports[addr]
	})
}
