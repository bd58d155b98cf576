package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
)

// watchEvery is how often the agent checks the files of its settings. New content is used only after two
// consecutive checks have found it, so that a partly written file is not read.
const watchEvery = 2 * time.Second

// Reloading has what a running agent needs to reload its settings.
type Reloading struct {
	Load  func() (settings.Agent, error) // reads all sources again
	Level *slog.LevelVar                 // of the log
}

// hangups starts catching SIGHUP. Without it, a SIGHUP meant to reload the settings would kill an agent that
// is still joining.
func hangups() chan os.Signal {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	return received
}

// reloader applies changed settings to a running agent.
type reloader struct {
	Reloading

	agent *cluster.Agent
	pins  store.Store // nil if there is no store
	web   *web
	log   *slog.Logger

	mu      sync.Mutex // allows one reload or change of the key file at a time
	running settings.Agent
	files

	state atomic.Pointer[sources] // read by other goroutines
}

// files tracks changes of the files that the settings are read from.
type files struct {
	read settings.Files // when the settings were last read, or tried to be
	seen settings.Files // at the last check
}

// changed reports whether a file has changed. It returns true only after two checks in a row have found the same
// content.
func (f *files) changed() bool {
	before := f.seen
	f.seen = f.read.Now()
	return !maps.Equal(f.seen, f.read) && maps.Equal(f.seen, before)
}

// start starts an agent with its scopes. If settings change while the agent is joining, and the change needs no
// restart, start stops joining and returns the new settings.
func (r Reloading) start(
	ctx context.Context,
	c cluster.Config,
	running settings.Agent,
	hangups <-chan os.Signal,
	log *slog.Logger,
) (*cluster.Agent, *settings.Agent, error) {
	joining, giveUp := context.WithCancel(ctx)
	defer giveUp()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan *settings.Agent, 1)
	go func() {
		next := r.await(watching, running, hangups, log)
		if next != nil {
			giveUp()
		}
		changed <- next
	}()
	agent, err := cluster.Start(joining, c)
	stop()
	if next := <-changed; err != nil {
		return nil, next, err
	}
	for _, s := range running.Scopes {
		if _, err := agent.Scope(s.Name, s.Match); err != nil {
			_ = agent.Leave(joining) // otherwise the other nodes would report a crash
			return nil, nil, err
		}
	}
	return agent, nil, nil // the reloader notices settings that changed at this moment
}

// await waits until a setting changes that needs no restart, and returns the new settings. If ctx ends first, await
// returns nil.
func (r Reloading) await(ctx context.Context, running settings.Agent, hangups <-chan os.Signal, log *slog.Logger) *settings.Agent {
	f := files{read: running.Read()}
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for {
		select {
		case <-hangups:
		case <-look.C:
			if !f.changed() {
				continue
			}
		case <-ctx.Done():
			return nil
		}
		next, err := r.Load()
		f.read = next.Read()
		if err != nil {
			logAlways(log, slog.LevelWarn, "reload failed; settings unchanged", "err", err)
			continue
		}
		taken, live, restart := running.Reload(next)
		tell(log, next.Warnings, restart)
		if len(live) > 0 {
			logAlways(log, slog.LevelInfo, "settings changed while joining; starting again", "changed", live)
			return &taken
		}
		logAlways(log, slog.LevelInfo, "settings read again", "changed", live)
	}
}

// tell logs the risks of the new settings, and the changed settings that need a restart.
func tell(log *slog.Logger, warnings, restart []string) {
	for _, w := range warnings {
		log.Warn("risky configuration", "why", w)
	}
	if len(restart) > 0 {
		logAlways(log, slog.LevelWarn, "changed settings take effect after a restart", "settings", restart)
	}
}

// sources is the state of the files and environment variables that the settings are read from.
type sources struct {
	problem string // why the last reload failed; "" if it succeeded
	since   time.Time
	restart []string // changed settings that need a restart to take effect
	keyFile string
	keys    []string // fingerprints of the keys in keyFile; plain text without a key file
}

func newReloader(r Reloading, running settings.Agent, agent *cluster.Agent, pins store.Store, web *web, log *slog.Logger) *reloader {
	own := &reloader{Reloading: r, agent: agent, pins: pins, web: web, log: log, running: running, files: files{read: running.Read()}}
	own.publish("", nil)
	return own
}

// run reloads the settings after each SIGHUP and whenever one of their files changes, until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	for {
		select {
		case <-hangups:
			r.reload(true)
		case <-look.C:
			if r.look() {
				r.reload(false)
			}
		case <-ctx.Done():
			return
		}
		r.web.certs.look(time.Now())
	}
}

func (r *reloader) look() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed()
}

// reload applies the changed settings that need no restart. If any source has a problem, no setting changes.
// An automatic reload that finds no change does not log.
func (r *reloader) reload(requested bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.Load()
	r.read = next.Read()
	if err != nil {
		r.failed(err)
		return
	}
	running, live, restart := r.running.Reload(next)
	if err := r.apply(running, live); err != nil {
		r.failed(err)
		return
	}
	r.running = running
	was := r.state.Load()
	r.publish("", restart)
	if !requested && was.problem == "" && len(live) == 0 && slices.Equal(was.restart, restart) {
		return
	}
	tell(r.log, next.Warnings, restart)
	if slices.Contains(live, "key-file") {
		prints := r.agent.KeyFingerprints()
		logAlways(r.log, slog.LevelInfo, "gossip keys read again", "sends_with", prints[0], "accepts", prints[1:])
	}
	logAlways(r.log, slog.LevelInfo, "settings read again", "changed", live)
}

func (r *reloader) failed(err error) {
	logAlways(r.log, slog.LevelWarn, "reload failed; settings unchanged", "err", err)
	r.publish(err.Error(), r.state.Load().restart)
}

// apply first makes the changes that can fail, so that it applies either all changes or none.
func (r *reloader) apply(a settings.Agent, changed []string) error {
	if slices.Contains(changed, "key-file") {
		if err := r.agent.SetKeys(a.Cluster.Key, a.Cluster.OldKeys...); err != nil {
			return err
		}
	}
	if slices.Contains(changed, "join") { // the seeds have already been validated
		if err := r.agent.SetJoin(a.Cluster.Join...); err != nil {
			return err
		}
	}
	r.Level.Set(a.LogLevel)
	r.web.setTokens(a)
	if r.pins != nil {
		r.pins.SetCredentials(a.Store)
	}
	return nil
}

func (r *reloader) publish(problem string, restart []string) {
	s := &sources{problem: problem, since: time.Now(), restart: restart, keyFile: r.running.KeyFile}
	if was := r.state.Load(); was != nil && was.problem != "" && problem != "" {
		s.since = was.since
	}
	s.keys = []string{cluster.PlainText}
	if c := r.running.Cluster; len(c.Key) > 0 {
		s.keys = nil
		for _, k := range append([][]byte{c.Key}, c.OldKeys...) {
			s.keys = append(s.keys, cluster.KeyFingerprint(k))
		}
	}
	r.state.Store(s)
}

// failing returns the reason why the last reload of settings or TLS files failed, and the time since which
// reloading has been failing. If the last reload succeeded, it returns "".
func (r *reloader) failing() (problem string, since time.Time) {
	s := r.state.Load()
	tls, at := r.web.certs.problem()
	switch {
	case s.problem == "":
		return tls, at
	case tls == "":
		return s.problem, s.since
	}
	return s.problem + "; " + tls, s.since
}

// report returns the state of the sources, for roost doctor.
func (r *reloader) report() *clusterhttp.Sources {
	s := r.state.Load()
	report := &clusterhttp.Sources{Restart: s.restart}
	if problem, since := r.failing(); problem != "" {
		report.Problem, report.ProblemMS = oneLine(problem), time.Since(since).Milliseconds()
	}
	if !sameKeys(s.keys, r.agent.KeyFingerprints()) {
		report.KeyFile = s.keyFile
	}
	return report
}

// oneLine joins several lines of problems into one line.
func oneLine(problems string) string {
	return strings.ReplaceAll(strings.ReplaceAll(problems, ":\n  ", ": "), "\n  ", "; ")
}

// sameKeys reports whether two lists of fingerprints start with the same fingerprint and contain the same
// others in any order.
func sameKeys(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return a[0] == b[0] && slices.Equal(slices.Sorted(slices.Values(a[1:])), slices.Sorted(slices.Values(b[1:])))
}

// saveKeys writes the gossip keys to the key file after they were changed via the HTTP API.
func (r *reloader) saveKeys() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	path, keys := r.running.KeyFile, r.agent.Keys()
	if sameKeys(r.state.Load().keys, r.agent.KeyFingerprints()) {
		return nil
	}
	if path == "" {
		return errors.New("there is no --key-file")
	}
	if r.read[path] != r.read.Now()[path] {
		return fmt.Errorf("%s has changed at the same time, and the agent reads it again soon", path)
	}
	if err := settings.WriteKeys(path, keys); err != nil {
		return fmt.Errorf("the key file was not changed: %w", err)
	}
	r.running.Cluster.Key, r.running.Cluster.OldKeys = keys[0], keys[1:]
	r.read.Note(path)
	r.publish(r.state.Load().problem, r.state.Load().restart)
	return nil
}
