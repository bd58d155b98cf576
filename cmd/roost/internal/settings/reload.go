package settings

import (
	"maps"
	"slices"

	"github.com/roost-cluster/roost/cmd/roost/internal/store"
)

// Reload applies the settings that can change while the agent runs: log-level, join, the content of the key
// and token files, and the user and password of Redis. Reload returns the new settings of the agent and the
// names of the changed settings. The settings in live were applied, and the settings in restart need a
// restart. A setting that names a file with secrets is considered changed when the content of the file
// changes.
func (a *Agent) Reload(next Agent) (running Agent, live, restart []string) {
	running = *a
	running.given = maps.Clone(a.given)
	for _, s := range a.Settings() {
		was, is := a.secretsOf(s.Name), next.secretsOf(s.Name)
		if slices.Equal(a.given[s.Name].values, next.given[s.Name].values) && slices.Equal(was, is) {
			continue
		}
		if !running.take(s.Name, next, (len(was) > 0) == (len(is) > 0)) {
			restart = append(restart, s.Name)
			continue
		}
		running.given[s.Name] = next.given[s.Name]
		live = append(live, s.Name)
	}
	return running, live, restart
}

// take applies a setting and reports whether it could. A running agent cannot start or stop requiring tokens,
// and can start encrypting only if the new key file has the line plain. paired says that the setting has
// secrets both before and after the change, or neither before nor after.
func (a *Agent) take(name string, next Agent, paired bool) bool {
	switch name {
	case "log-level":
		a.LogLevel = next.LogLevel
	case "join":
		a.Cluster.Join = next.Cluster.Join
	case "key-file":
		return a.takeKeys(next, paired)
	case "http-token-file":
		if paired {
			a.Tokens = next.Tokens
		}
		return paired
	case "http-read-token-file":
		if paired {
			a.ReadTokens = next.ReadTokens
		}
		return paired
	case "redis", "redis-file":
		// While agents use different Redis servers, a room could have two hosts.
		same := store.SamePlace(a.Store, next.Store)
		if same {
			a.Store = next.Store
		}
		return same
	default:
		return false
	}
	return true
}

func (a *Agent) takeKeys(next Agent, paired bool) bool {
	first := len(a.Cluster.Key) == 0 && next.takesPlain()
	if paired || first {
		a.KeyFile, a.Cluster.Key, a.Cluster.OldKeys = next.KeyFile, next.Cluster.Key, next.Cluster.OldKeys
	}
	return paired || first
}

// secretsOf returns the secrets in the file that a setting names.
func (a *Agent) secretsOf(name string) (secrets []string) {
	switch name {
	case "key-file":
		for _, key := range append([][]byte{a.Cluster.Key}, a.Cluster.OldKeys...) {
			if len(key) > 0 {
				secrets = append(secrets, string(key))
			}
		}
	case "http-token-file":
		secrets = a.Tokens
	case "http-read-token-file":
		secrets = a.ReadTokens
	case "redis-file":
		if len(a.given[name].values) > 0 { // else the URL belongs to the setting redis
			secrets = []string{a.Store}
		}
	}
	return secrets
}
