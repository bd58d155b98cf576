package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/hex"

	"github.com/redis/rueidis"
)

var (
	//go:embed swap.lua
	swapSource string
	//go:embed reserve.lua
	reserveSource string
	//go:embed apart.lua
	apartSource string
	//go:embed clean.lua
	cleanSource string
	//go:embed heartbeat.lua
	heartbeatSource string
	//go:embed agree.lua
	agreeSource string
)

// script is a Lua script that the server stores under its hash. Only a server without
// the script receives it in full.
type script struct{ source, hash string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by it
	return script{source, hex.EncodeToString(sum[:])}
}

// call is one run of a script. All keys are of one partition.
type call struct{ keys, args []string }

// run runs the script once for each call and returns the answers in order. The calls
// share a round trip.
func (s script) run(ctx context.Context, c rueidis.Client, calls ...call) []rueidis.RedisResult {
	cmds := make([]rueidis.Completed, len(calls))
	for i, call := range calls {
		cmds[i] = c.B().Evalsha().Sha1(s.hash).Numkeys(int64(len(call.keys))).Key(call.keys...).Arg(call.args...).Build()
	}
	results := send(ctx, c, cmds)
	var again []int // calls to a server that has started, or taken over, since the last time
	cmds = cmds[:0]
	for i := range results {
		if err, ok := rueidis.IsRedisErr(results[i].Error()); ok && err.IsNoScript() {
			again = append(again, i)
			cmds = append(cmds, c.B().Eval().Script(s.source).Numkeys(int64(len(calls[i].keys))).
				Key(calls[i].keys...).Arg(calls[i].args...).Build())
		}
	}
	if len(again) > 0 {
		for j, result := range send(ctx, c, cmds) {
			results[again[j]] = result
		}
	}
	return results
}

// send has a shortcut for a single command.
func send(ctx context.Context, c rueidis.Client, cmds []rueidis.Completed) []rueidis.RedisResult {
	if len(cmds) == 1 {
		return []rueidis.RedisResult{c.Do(ctx, cmds[0])}
	}
	return c.DoMulti(ctx, cmds...)
}

// command is a command with the keys of one partition.
type command struct {
	name string
	keys []string
	args []string
}

// doPlain runs commands on the connections without tracking, in one round trip, and
// returns when ctx ends at the latest.
func (s *Store) doPlain(ctx context.Context, commands ...command) ([]rueidis.RedisResult, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	return do(ctx, s, func(ctx context.Context, l *link) []rueidis.RedisResult {
		cmds := make([]rueidis.Completed, len(commands))
		for i, c := range commands {
			cmds[i] = l.plain.B().Arbitrary(c.name).Keys(c.keys...).Args(c.args...).Build()
		}
		return send(ctx, l.plain, cmds)
	})
}

// runPlain is doPlain for a script.
func (s *Store) runPlain(ctx context.Context, sc script, calls ...call) ([]rueidis.RedisResult, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	return do(ctx, s, func(ctx context.Context, l *link) []rueidis.RedisResult {
		return sc.run(ctx, l.plain, calls...)
	})
}
