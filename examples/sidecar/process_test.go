//go:build linux

package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/printed"
	"github.com/roost-cluster/roost/internal/redistest"
)

// process is an agent or a media server.
type process struct {
	cmd  *exec.Cmd
	log  *printed.Buffer
	done chan struct{} // closed when it has ended
}

func start(t *testing.T, cmd *exec.Cmd, env ...string) *process {
	t.Helper()
	p := &process{cmd: cmd, log: new(printed.Buffer), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROOST_") })
	cmd.Env = append(cmd.Env, env...)
	// Else it would outlive a test that panics.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v:\n%s", cmd.Args, p.log)
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// node is an agent with the media server beside it.
type node struct {
	id            string
	agent, server *process
	addr          string // of the server, and the agent's --api-addr
	gossip        string
	clusterhttp.Client
}

const token = "correct-horse-battery"

// startNode starts an agent and, when that tells where it listens, the server.
func startNode(t *testing.T, exe, id string, args ...string) *node {
	t.Helper()
	n := &node{id: id, addr: freeAddr(t), Client: clusterhttp.Client{Token: token}}
	args = append([]string{
		"agent", "--id", id, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--api-addr", n.addr,
		"--log-format", "json", "--heartbeat", "500ms", "--ttl", "3s", "--capacity", "1000",
	}, args...)
	n.agent = start(t, exec.Command(exe, args...))
	redistest.Eventually(t, "agent "+id, func() error {
		for line := range strings.Lines(n.agent.log.String()) {
			var l struct{ Msg, Gossip, HTTP string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "agent running" {
				n.gossip, n.Base = l.Gossip, l.HTTP
				return nil
			}
		}
		select {
		case <-n.agent.done:
			t.Fatalf("agent %s ended: %v", id, n.agent.cmd.ProcessState)
		default:
		}
		return errors.New("it does not say that it runs")
	})
	n.server = start(t, exec.Command("node", "server.mjs"), "AGENT=http://"+n.Base, "LISTEN="+n.addr, "ROOST_TOKEN="+token)
	return n
}

// freeAddr is below the range from which the system gives ports to outgoing
// connections: none of those can take it before the server does.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port from 20000 to 32000")
	return ""
}
