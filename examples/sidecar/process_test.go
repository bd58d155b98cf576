//go:build linux

package sidecar

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }

// node is an agent with a media server next to it.
type node struct {
	*agenttest.Agent
	server *agentproc.Process
	addr   string // address of the server, which is also the agent's --api-addr
}

const token = "correct-horse-battery"

// server is a media server: the program that runs it, and its file.
type server struct{ program, file string }

// startNode starts an agent, and starts the server as soon as the agent is running.
func startNode(t *testing.T, s server, id string, args ...string) *node {
	t.Helper()
	n := &node{addr: fmt.Sprint("127.0.0.1:", redistest.FreePort(t))}
	n.Agent = agenttest.Run(t, id,
		append([]string{"--api-addr", n.addr, "--heartbeat", "500ms", "--ttl", "3s", "--capacity", "1000"}, args...)...)
	n.Token = token
	server := exec.Command(s.program, s.file)
	server.Env = append(agentproc.Environ(), "PYTHONDONTWRITEBYTECODE=1", "AGENT=http://"+n.Base, "LISTEN="+n.addr, "ROOST_TOKEN="+token)
	n.server = agenttest.Start(t, server)
	return n
}
