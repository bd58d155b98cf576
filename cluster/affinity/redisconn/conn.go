// Package redisconn defines what the stores of package redisstore need from a Redis client: pipelined
// commands and a subscription. Use package rueidisconn to open a new connection, or package goredisconn if
// your program already has a go-redis client. A program compiles only the client that it imports.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Conn is a connection to a Redis server or to a Redis Cluster. All methods must be safe for concurrent use.
type Conn interface {
	// Do sends commands in as few round trips as possible and returns their replies in order. Do returns no
	// later than when ctx ends. Do must not send a command twice, except to follow a redirection of a Redis
	// Cluster.
	Do(ctx context.Context, commands ...Command) []Reply

	// Subscribe calls message with each payload that is published to a channel, one call at a time. Subscribe
	// runs until ctx ends or the subscription is lost, and returns the reason.
	Subscribe(ctx context.Context, channel string, message func(payload string)) error

	// OnLoss registers the function lost. The Conn calls lost whenever a connection to a server is lost,
	// because the server may have lost its data. The call must return before any later connection to that
	// server answers a command. The Conn may also call lost when no data was lost. OnLoss is called at most
	// once for each Conn, before all other methods.
	OnLoss(lost func())

	// Close stops everything that the connection has started. Commands in progress fail, and Close waits for
	// them.
	Close() error

	// Clustered reports whether Redis divides the keys among servers by hash slot. Clustered returns an error
	// until a server has answered. After that, the result must not change.
	Clustered() (bool, error)
}

// Command is a Redis command. A Command consists of the words in Head, Keys and Args, in that order. In a
// Redis Cluster, all Keys must have the same hash slot. A command without Keys can go to any master.
type Command struct{ Head, Keys, Args []string }

// Words returns all words of a command.
func (c Command) Words() []string {
	words := make([]string, 0, len(c.Head)+len(c.Keys)+len(c.Args))
	return append(append(append(words, c.Head...), c.Keys...), c.Args...)
}

// Reply is the reply to a command.
type Reply struct {
	// Value is nil, an int64, a string, or a []any that contains these types and nested lists.
	Value any

	// Err is an [Error] if the server rejected the command. If the server did not reply, Err is another
	// error.
	Err error
}

// Error is an error message from a server. Its first word is the kind of error, for example NOSCRIPT.
type Error string

func (e Error) Error() string { return string(e) }

// IsKind reports whether err is an [Error] of the given kind, for example "READONLY".
func IsKind(err error, kind string) bool {
	e, ok := errors.AsType[Error](err)
	return ok && (string(e) == kind || strings.HasPrefix(string(e), kind+" "))
}

// ErrClosed reports that the connection was closed by a call of its Close method.
var ErrClosed = errors.New("the connection to Redis is closed")

// Int returns the reply as an integer.
func (r Reply) Int() (int64, error) { return as[int64](r) }

// Text returns the reply as a string. A nil reply becomes an empty string.
func (r Reply) Text() (string, error) {
	if r.Err == nil && r.Value == nil {
		return "", nil
	}
	return as[string](r)
}

// List returns the reply as a list.
func (r Reply) List() ([]any, error) { return as[[]any](r) }

// Texts returns the reply as a list of strings. A nil in the list becomes an empty string.
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
		err = fmt.Errorf("the reply is a %T, not a %T", r.Value, v)
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
