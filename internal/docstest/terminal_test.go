//go:build linux

package docstest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
)

// terminal runs a process until Ctrl-C.
type terminal struct {
	*agentproc.Process
	line  string // as it is on the page
	http  string // the address that it serves, or ""
	codes []int
}

var (
	httpFlag = regexp.MustCompile(`.* --http (\S+)`)
	joins    = regexp.MustCompile(`--join|ROOST_JOIN`)
)

// open starts a command, and waits until its output matches want. If an older process has the same HTTP address, open
// ends it first, because a reader would also have to do this.
func (s *sitting) open(line string, want *regexp.Regexp, codes []int) (out func() string, err error) {
	script := s.literal(strings.TrimSuffix(line, " &"))
	term := &terminal{line: line, codes: codes}
	if m := httpFlag.FindStringSubmatch(script); m != nil {
		term.http = m[1]
	}
	for _, old := range s.terminals {
		if old.http == term.http && term.http != "" {
			if err := old.ctrlC(); err != nil {
				return nil, err
			}
		}
	}
	if term.Process, err = agentproc.Start(s.process(s.t.Context(), script), nil); err != nil {
		return nil, err
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-term.PID(), syscall.SIGKILL)
		<-term.Done()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", line, term.Log)
		}
	})
	s.terminals = append(s.terminals, term)
	err = eventually(func() error {
		if !term.Ended() && !want.MatchString(term.Log.String()) {
			return fmt.Errorf("%s: prints\n%s\nwant a match of %s", line, term.Log, want)
		}
		return nil
	})
	if term.Ended() {
		err = fmt.Errorf("%s: ends with %v and prints\n%s", line, term.State(), term.Log)
	}
	if err == nil && isAgent.MatchString(line) {
		members := 1
		if joins.MatchString(script) {
			members = 2
		}
		err = s.agree(term.http, members)
	}
	return term.Log.String, err
}

// agree waits until an agent has the same table as all members that it knows.
func (s *sitting) agree(http string, members int) error {
	return eventually(func() error {
		out, code := s.bash("roost members --output json --addr " + http)
		if code != 0 || !strings.Contains(out, `"converged":true`) || strings.Count(out, `"in_sync":true`) < members {
			return fmt.Errorf("no agreement yet at %s: %s", http, out)
		}
		return nil
	})
}

// end presses Ctrl-C in the terminal that the line of the page refers to, such as "the terminal of b".
func (s *sitting) end(line string) error {
	id := "-id " + line[strings.LastIndexByte(line, ' ')+1:] + " "
	i := slices.IndexFunc(s.terminals, func(term *terminal) bool { return strings.Contains(term.line, id) })
	if i < 0 {
		return fmt.Errorf("%s: nothing runs with %s", line, id)
	}
	return s.terminals[i].ctrlC()
}

func (term *terminal) ctrlC() error {
	if !term.Ended() {
		if err := syscall.Kill(-term.PID(), syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	select {
	case <-term.Done():
	case <-time.After(timeout):
		return fmt.Errorf("%s: goes on after Ctrl-C", term.line)
	}
	if !slices.Contains(term.codes, term.State().ExitCode()) {
		return fmt.Errorf("%s: %v after Ctrl-C, want %v:\n%s", term.line, term.State(), term.codes, term.Log)
	}
	return nil
}
