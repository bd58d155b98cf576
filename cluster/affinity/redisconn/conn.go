// Package redisconn defines what the stores of package redisstore need from a client of Redis: commands in a
// pipeline and a subscription. Package rueidisconn connects by itself. Package goredisconn uses a go-redis
// client that your program already has. A program compiles only the client that it imports.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Conn is a connection to a Redis server or to a Redis Cluster. All methods must be safe for concurrent use.
type Conn interface {
	// Do sends commands in as few round trips as possible, and returns their replies in order. It returns when ctx
	// ends at the latest. Do must not send a command twice, except to follow a redirection of a Redis Cluster.
	Do(ctx context.Context, commands ...Command) []Reply

	// Subscribe calls message with each payload that is published to a channel, one call at a time, until ctx
	// ends or the subscription is lost. It returns the reason.
	Subscribe(ctx context.Context, channel string, message func(payload string)) error

	// OnLoss registers a function that is called whenever a connection to a server is lost, because the server
	// may have lost its data. The call must return before any later connection to that server answers a command,
	// and may also come when nothing was lost. OnLoss is called at most once for each Conn, before all other methods.
	OnLoss(lost func())

	// Close ends what the connection has begun. Commands in progress fail, and Close waits for them.
	Close() error

	// Clustered reports whether Redis divides the keys among servers by hash slot, or an error while that is
	// not known because no server has answered yet. The answer must not change afterward.
	Clustered() (bool, error)
}

// Command is a command of Redis. Its words are Head, Keys and Args, in that order. In a Redis Cluster, all Keys have
// the same hash slot, and a command without Keys can go to any master.
type Command struct{ Head, Keys, Args []string }

// Words returns all words of a command.
func (c Command) Words() []string {
	words := make([]string, 0, len(c.Head)+len(c.Keys)+len(c.Args))
	return append(append(append(words, c.Head...), c.Keys...), c.Args...)
}

// Reply is the reply to a command.
type Reply struct {
	// Value is nil, an int64, a string, or a []any of these and of nested lists.
	Value any

	// Err is an [Error] if the server has rejected the command, or another error if it did not reply.
	Err error
}

// Error is an error that a server has sent. Its first word is its kind, for example NOSCRIPT.
type Error string

func (e Error) Error() string { return string(e) }

// IsKind reports whether err is an [Error] of a kind, for example "READONLY".
func IsKind(err error, kind string) bool {
	e, ok := errors.AsType[Error](err)
	return ok && (string(e) == kind || strings.HasPrefix(string(e), kind+" "))
}

// ErrClosed reports that the connection was closed with its Close method.
var ErrClosed = errors.New("the connection to Redis is closed")

// Int returns an integer.
func (r Reply) Int() (int64, error) { return as[int64](r) }

// Text returns a string. It is empty for nil.
func (r Reply) Text() (string, error) {
	if r.Err == nil && r.Value == nil {
		return "", nil
	}
	return as[string](r)
}

// List returns a list.
func (r Reply) List() ([]any, error) { return as[[]any](r) }

// Texts returns a list of strings. A nil in the list becomes an empty string.
func (r Reply) Texts() ([]string, error) {
	list, err := r.List()
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(list))
	for i, v := range list {
		if texts[i], err = (Reply{Value: v}).Text(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

func as[T any](r Reply) (v T, err error) {
	if r.Err != nil {
		return v, r.Err
	}
	v, ok := r.Value.(T)
	if !ok {
		err = fmt.Errorf("the reply is a %T and not a %T", r.Value, v)
	}
	return v, err
}

// Failed returns n replies with the same error.
func Failed(n int, err error) []Reply {
	replies := make([]Reply, n)
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}
