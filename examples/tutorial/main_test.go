package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// What the page quotes is in the program.
func TestQuotes(t *testing.T) {
	program := read(t, "main.go")
	quotes := blocks(t, "go")
	if len(quotes) == 0 {
		t.Fatal("the page quotes nothing")
	}
	for _, quote := range quotes {
		if !strings.Contains(program, quote) {
			t.Errorf("main.go does not have this any more:\n%s", quote)
		}
	}
}

// What the page has its reader type does what the page says.
func TestCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("two processes join and leave: seconds")
	}
	r := reader{program: filepath.Join(t.TempDir(), "tutorial"), ports: make(map[string]string), nodes: make(map[string]*exec.Cmd)}
	if out, err := exec.Command("go", "build", "-o", r.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, block := range blocks(t, "sh") {
		for line := range strings.Lines(block) {
			if !strings.HasPrefix(line, "git clone ") {
				r.do(t, r.mapPorts(t, strings.TrimSpace(line)))
			}
		}
	}
	if len(r.nodes) != 1 {
		t.Errorf("%d nodes run at the end of the page, want 1", len(r.nodes))
	}
	for id := range r.nodes {
		r.end(t, id)
	}
}

// reader follows the page, with free ports in place of the page's.
type reader struct {
	program string
	ports   map[string]string    // free ones by those of the page
	nodes   map[string]*exec.Cmd // that run, by id
	ended   bool                 // a node has: it drained, so that nobody has to wait
}

var (
	start   = regexp.MustCompile(`^go run \./examples/tutorial (-id (\w+) .*)$`)
	ask     = regexp.MustCompile(`^curl (-LX (POST) )?(\S+) +# (… )?(.*?)( …)?$`)
	endNode = regexp.MustCompile(`^# Ctrl-C in the terminal of (\w+)$`)
	address = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

func (r *reader) do(t *testing.T, line string) {
	t.Helper()
	if m := start.FindStringSubmatch(line); m != nil {
		cmd := exec.Command(r.program, strings.Fields(m[1])...)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		r.nodes[m[2]] = cmd
		at := regexp.MustCompile(`-http (\S+)`).FindStringSubmatch(m[1])[1]
		redistest.Eventually(t, "node "+m[2], func() error { return answers(http.MethodGet, at+"/metrics", "roost_") })
	} else if m := ask.FindStringSubmatch(line); m != nil {
		method := cmp.Or(m[2], http.MethodGet)
		if !r.ended {
			redistest.Eventually(t, line, func() error { return answers(method, m[3], m[5]) })
		} else if err := answers(method, m[3], m[5]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	} else if m := endNode.FindStringSubmatch(line); m != nil {
		r.end(t, m[1])
	} else {
		t.Fatalf("the page says %q, and this test does not know how", line)
	}
}

// end presses Ctrl-C.
func (r *reader) end(t *testing.T, id string) {
	t.Helper()
	cmd := r.nodes[id]
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("node %s: %v", id, err)
	}
	delete(r.nodes, id)
	r.ended = true
}

func (r *reader) mapPorts(t *testing.T, line string) string {
	t.Helper()
	return address.ReplaceAllStringFunc(line, func(addr string) string {
		if r.ports[addr] == "" {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			r.ports[addr] = l.Addr().String()
			_ = l.Close()
		}
		return r.ports[addr]
	})
}

// answers reports why want is not in what a server answers.
func answers(method, url, want string) error {
	req, err := http.NewRequest(method, "http://"+url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want)) {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// blocks returns what the page has between ``` and ``` in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(read(t, docs+"tutorial.md"), -1) {
		found = append(found, m[1])
	}
	return found
}
