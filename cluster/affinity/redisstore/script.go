package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis identifies scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"strconv"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

var (
	//go:embed swap.lua
	swapSource string
	//go:embed reserve.lua
	reserveSource string
	//go:embed enter.lua
	enterSource string
	//go:embed clean.lua
	cleanSource string
	//go:embed heartbeat.lua
	heartbeatSource string
	//go:embed agree.lua
	agreeSource string
)

// script is a Lua script that the server stores under its hash. The store sends the source only to a server
// that does not have the script yet.
type script struct{ source, hash string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis identifies scripts by their SHA-1
	return script{source, hex.EncodeToString(sum[:])}
}

// call is one run of a script. In a Redis Cluster, all its keys must belong to one slot.
type call struct{ keys, args []string }

// run runs the script once for each call and returns the answers in order. The calls share a round trip.
func (s script) run(ctx context.Context, c redisconn.Conn, calls ...call) []redisconn.Reply {
	if len(calls) == 0 {
		return nil
	}
	replies := c.Do(ctx, s.commands("EVALSHA", s.hash, calls)...)
	var again []int // calls to a server that lacks the script, because it has just started or taken over
	for i := range replies {
		if redisconn.IsKind(replies[i].Err, "NOSCRIPT") {
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		some := make([]call, len(again))
		for j, i := range again {
			some[j] = calls[i]
		}
		for j, reply := range c.Do(ctx, s.commands("EVAL", s.source, some)...) {
			replies[again[j]] = reply
		}
	}
	return replies
}

func (s script) commands(name, script string, calls []call) []redisconn.Command {
	commands := make([]redisconn.Command, len(calls))
	for i, c := range calls {
		commands[i] = redisconn.Command{Head: []string{name, script, strconv.Itoa(len(c.keys))}, Keys: c.keys, Args: c.args}
	}
	return commands
}

// command returns a command that is not a script.
func command(name string, keys []string, args ...string) redisconn.Command {
	return redisconn.Command{Head: []string{name}, Keys: keys, Args: args}
}
