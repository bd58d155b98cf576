package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// Options configures a Store.
type Options struct {
	// Prefix is the prefix of the channel and of all keys except those of the fingerprint. All nodes of a
	// cluster must use the same prefix. Clusters that share a Redis need different prefixes and different
	// names (cluster.Config.Cluster). If two clusters use the same prefix, affinity.Start fails in the
	// cluster that starts later. The prefix can have up to 64 characters of printable ASCII without spaces
	// and braces. Default "roost:".
	Prefix string
}

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = "roost:"

// Store keeps pins in Redis. Create a Store with New. Its methods are safe for concurrent use.
type Store struct {
	conn   redisconn.Conn
	prefix string

	swap, enter, clean, heartbeat, reserve, agree script

	// split is set when a command with keys in several hash slots was refused although the server is not a
	// Redis Cluster. A proxy that divides the keys causes such errors.
	split  atomic.Bool
	probed atomic.Bool // a command with keys in several slots was answered

	news    *subscription
	beats   beats
	changed atomic.Pointer[[]*user]

	mu    sync.Mutex // guards changed against concurrent writers
	quit  context.CancelFunc
	tasks sync.WaitGroup
}

var _ pinstore.Store = (*Store)(nil)

// New returns a store that uses conn. New returns an error only if the options are invalid. The store
// subscribes to changes in the background. The store then owns the connection, and Store.Close closes it.
func New(conn redisconn.Conn, opt Options) (*Store, error) {
	prefix := cmp.Or(opt.Prefix, DefaultPrefix)
	if err := checkPrefix(prefix); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	life, quit := context.WithCancel(context.Background())
	s := &Store{
		conn:      conn,
		prefix:    prefix,
		swap:      newScript(swapSource),
		enter:     newScript(enterSource),
		clean:     newScript(cleanSource),
		heartbeat: newScript(heartbeatSource),
		reserve:   newScript(reserveSource),
		agree:     newScript(agreeSource),
		quit:      quit,
	}
	s.news = newSubscription(conn, prefix, s.notify)
	conn.OnLoss(func() { s.news.lose(errLost) })
	s.tasks.Go(func() { s.news.run(life) })
	return s, nil
}

// String returns the address of Redis, without the user and passwords.
func (s *Store) String() string {
	if at, ok := s.conn.(fmt.Stringer); ok {
		return at.String()
	}
	return "Redis"
}

// Close closes the store and its connection. Calls in progress fail, and Close waits for them. If Redis
// hangs, Close takes a second or two.
func (s *Store) Close() error {
	s.quit()
	err := s.conn.Close()
	s.tasks.Wait()
	return err
}

// keys returns the builder of key names. The names depend on whether Redis divides the keys by hash slot.
func (s *Store) keys() (keys, error) {
	clustered, err := s.conn.Clustered()
	return keys{s.prefix, clustered || s.split.Load()}, err
}

// probe finds out whether a proxy divides the keys of a server that is not a Redis Cluster.
func (s *Store) probe(ctx context.Context) {
	names, err := s.keys()
	if err != nil || names.clustered || s.probed.Load() {
		return
	}
	switch reply := s.conn.Do(ctx, command("MGET", []string{names.pin(0, "probe"), names.pin(1, "probe")}))[0]; {
	case scattered(reply.Err):
		s.split.Store(true)
	case reply.Err == nil:
		s.probed.Store(true)
	}
}

// storeError wraps err in pinstore.ErrStore and names the operation.
func storeError(what string, err error) error { return errorOf(pinstore.ErrStore, what, err) }

func errorOf(kind error, what string, err error) error {
	hint := ""
	switch {
	case redisconn.IsKind(err, "ASK"): // the client follows the redirection itself if it has the permission
		hint = " (a slot is moving; if this persists, the Redis user lacks the permission +asking)"
	case err != nil && strings.Contains(err.Error(), "permissions to access a channel"):
		hint = " (give the Redis user access to the channel, for example with &roost:*)"
	}
	return fmt.Errorf("%w: redis: %s: %w%s", kind, what, err, hint)
}

// scattered reports whether a server or a proxy has refused a command because its keys are in several hash
// slots.
func scattered(err error) bool { return redisconn.IsKind(err, "CROSSSLOT") }

// moving reports whether the keys of a command are on two servers, because their hash slot is moving to
// another server of a Redis Cluster. Commands with only one key still work, because the cluster redirects
// them to the right server.
func moving(err error) bool { return redisconn.IsKind(err, "TRYAGAIN") }

var errAnswer = errors.New("unexpected form of a script's answer")
