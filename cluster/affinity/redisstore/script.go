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

// call is a run of a script. All its keys belong to one partition.
type call struct{ keys, args []string }

// run runs the script once for each call and returns the answers in order. The calls
// share a round trip.
func (s script) run(ctx context.Context, c rueidis.Client, calls ...call) []rueidis.RedisResult {
	answers, _ := s.watch(ctx, c, calls, make([][]string, len(calls)))
	return answers
}

// watch is run for a connection that is told what to track. After each call, the connection tracks the call's
// keys in watch and reads their values, in the same round trip. A key whose value is an error is not tracked.
func (s script) watch(ctx context.Context, c rueidis.Client, calls []call, watch [][]string) (answers, values []rueidis.RedisResult) {
	answers, values = s.ask(ctx, c, calls, watch, false)
	var again []int // calls to a server that does not have the script, because it has started or taken over
	for i := range answers {
		if err, ok := rueidis.IsRedisErr(answers[i].Error()); ok && err.IsNoScript() {
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		a, v := s.ask(ctx, c, pick(calls, again), pick(watch, again), true)
		for j, i := range again {
			answers[i], values[i] = a[j], v[j]
		}
	}
	return answers, values
}

func pick[T any](from []T, at []int) []T {
	some := make([]T, len(at))
	for j, i := range at {
		some[j] = from[i]
	}
	return some
}

// ask runs the script by its hash, or with its full source.
func (s script) ask(
	ctx context.Context,
	c rueidis.Client,
	calls []call,
	watch [][]string,
	full bool,
) (answers, values []rueidis.RedisResult) {
	cmds := make([]rueidis.Completed, 0, 3*len(calls))
	for i, call := range calls {
		keys := int64(len(call.keys))
		if full {
			cmds = append(cmds, c.B().Eval().Script(s.source).Numkeys(keys).Key(call.keys...).Arg(call.args...).Build())
		} else {
			cmds = append(cmds, c.B().Evalsha().Sha1(s.hash).Numkeys(keys).Key(call.keys...).Arg(call.args...).Build())
		}
		if len(watch[i]) > 0 {
			cmds = append(cmds, c.B().ClientCaching().Yes().Build(), c.B().Mget().Key(watch[i]...).Build())
		}
	}
	results := send(ctx, c, cmds)
	answers, values = make([]rueidis.RedisResult, len(calls)), make([]rueidis.RedisResult, len(calls))
	for i := range calls {
		answers[i], results = results[0], results[1:]
		if len(watch[i]) > 0 {
			values[i] = results[1]
			if results[0].Error() != nil {
				values[i] = results[0] // the connection does not track the keys that it has read
			}
			results = results[2:]
		}
	}
	return answers, values
}

// send has a shortcut for a single command.
func send(ctx context.Context, c rueidis.Client, cmds []rueidis.Completed) []rueidis.RedisResult {
	if len(cmds) == 1 {
		return []rueidis.RedisResult{c.Do(ctx, cmds[0])}
	}
	return c.DoMulti(ctx, cmds...)
}

// command is a command whose keys belong to one partition.
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
