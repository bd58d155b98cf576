package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/rekey"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

const keyBytes = 32

func (p *program) keygenCommand() *cobra.Command {
	var out, show string
	return p.withSettings(&cobra.Command{
		Use:   "keygen [flags]",
		Short: "Generate a key that encrypts gossip",
		Long: `Generate a key of 32 random bytes, in base64, for --key-file of all nodes. Nodes without it can
neither join the cluster nor read its messages. A key file may have several lines: the first
key encrypts, and all keys decrypt. So a cluster can change its key without an interruption, and
roost keys takes each step on all nodes.`,
		Example: `  roost keygen --out roost.key        only you can read the file; never overwrites a file
  roost keygen > roost.key
  roost keygen --show roost.key       compare with roost keys`,
		Args: takes(),
	}, []settings.Setting{
		{Name: "out", Arg: "FILE", Set: settings.Nonempty(&out), Usage: "write the key to a new FILE that only you can read"},
		{Name: "show", Arg: "FILE", Set: settings.Nonempty(&show), Usage: "generate no key, but print the fingerprints of the keys in FILE"},
	}, func(context.Context) error {
		if show != "" {
			return p.showKeys(show, out)
		}
		key := make([]byte, keyBytes)
		_, _ = rand.Read(key) // never returns an error
		line := base64.StdEncoding.EncodeToString(key) + "\n"
		if out == "" {
			_, err := io.WriteString(p.stdout, line)
			return err
		}
		return writeNew(out, line)
	})
}

// showKeys prints the fingerprints of the keys in a file, one per line, in the order of the file.
func (p *program) showKeys(path, out string) error {
	if out != "" {
		return settings.UsageError("--show generates no key for --out: give only one of them")
	}
	keys, warning, err := settings.Keys(path)
	if warning != "" {
		term.Complain(p.stderr, "warning: "+warning)
	}
	if err != nil {
		return settings.UsageError(fmt.Sprintf("--show %q: %v", path, err))
	}
	for _, key := range keys {
		if _, err := fmt.Fprintln(p.stdout, cluster.KeyFingerprint(key)); err != nil {
			return err
		}
	}
	return nil
}

// writeNew creates a file that only its owner can read. writeNew never overwrites a file, because a cluster
// could be using the key in it.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists, and keygen never overwrites a file", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // it may contain half a key
	}
	return err
}

func (p *program) keysCommand() *cobra.Command {
	step := new(rekey.Step)
	f := &session.Viewer{Every: time.Second, Ask: viewKeys}
	return p.clientCommand(&cobra.Command{
		Use:   "keys [flags]",
		Short: "Show which member has which gossip keys, or change them",
		Long: `Show which gossip keys each live member uses, as fingerprints, and what to do next while the
cluster changes its key. --install, --use and --remove each take one step on all nodes, without
a restart. The name plain means no encryption, so you can give a cluster its first key with the
same steps. Until --remove plain, any host that reaches a gossip port can join. Each agent
writes the change to its --key-file. If it cannot, the table says so, and a restart undoes
the step.`,
		Example: `  roost keys
  roost keys --watch
  roost keys --addr 127.0.0.1:8402 --output json`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if !step.Asked() {
			return f.Run(ctx, s)
		}
		err := step.Run(ctx, s)
		if errors.Is(err, rekey.ErrPartly) {
			return exitError(exitFailed)
		}
		return err
	}, append(step.Settings(), f.Settings()...)...)
}

// keyring is the JSON output of roost keys.
type keyring struct {
	Members []keysOf `json:"members"`
	Advice  []string `json:"advice"` // sentences for people
}

// keysOf describes which gossip keys a member has.
type keysOf struct {
	ID        lease.NodeID `json:"id"`
	SendsWith string       `json:"sends_with,omitempty"` // fingerprint of the key that encrypts outgoing messages
	Accepts   []string     `json:"accepts,omitempty"`    // fingerprints of other keys
}

func viewKeys(ctx context.Context, s *session.Session) (session.View, error) {
	m, err := s.Members(ctx)
	all := make([]keysOf, len(m.Members))
	for i, n := range m.Members {
		all[i].ID = n.ID
		if len(n.Keys) > 0 {
			all[i].SendsWith, all[i].Accepts = n.Keys[0], n.Keys[1:]
		}
	}
	advice := adviceOnKeys(all)
	answer := keyring{all, advice}
	page := term.Page("ID\tSENDS WITH\tACCEPTS", func(row func(...any)) {
		for _, k := range all {
			row(marked(k.ID, m.Self), term.OrDash(k.SendsWith), term.OrDash(strings.Join(k.Accepts, " ")))
		}
	}, "\n"+strings.Join(advice, "\n")+"\n")
	return session.View{Answer: answer, Counts: answer, Page: page}, err
}

// adviceOnKeys describes which nodes have which key, and what to do next. It cannot tell which of two keys is newer.
func adviceOnKeys(all []keysOf) (lines []string) {
	var states, silent []lease.NodeID
	sends, has := make(map[string][]lease.NodeID), make(map[string][]lease.NodeID)
	for _, k := range all {
		if k.SendsWith == "" {
			silent = append(silent, k.ID)
			continue
		}
		states = append(states, k.ID)
		sends[k.SendsWith] = append(sends[k.SendsWith], k.ID)
		for _, key := range append([]string{k.SendsWith}, k.Accepts...) {
			has[key] = append(has[key], k.ID)
		}
	}
	if len(states) == 0 {
		return []string{"No member reports a gossip key: the cluster has none, or its release does not report keys."}
	}
	if len(silent) > 0 {
		lines = append(lines, fmt.Sprintf("No key is reported by %s.", fewOf(silent)))
	}
	for _, key := range slices.Sorted(maps.Keys(has)) {
		lacks := slices.DeleteFunc(slices.Clone(states), func(id lease.NodeID) bool { return slices.Contains(has[key], id) })
		if key == cluster.PlainText {
			lines = append(lines, adviceOnPlain(sends[key], has[key]))
		} else {
			lines = append(lines, key+" "+adviceOnKey(sends[key], has[key], lacks))
		}
	}
	if len(sends) > 1 {
		lines = append(lines, "Make the new key the first line on all nodes before you remove the old key.")
	}
	return lines
}

// adviceOnPlain gives advice about plain text. send lists the members that send it, and have lists the members that
// accept it.
func adviceOnPlain(send, have []lease.NodeID) string {
	if len(send) > 0 {
		return fmt.Sprintf("Plain text is sent by %s: any host that reaches a gossip port can join and read gossip.", fewOf(send))
	}
	return fmt.Sprintf("Plain text is still accepted by %s, but no member sends it: remove plain there. Until then, any host can join.",
		fewOf(have))
}

// adviceOnKey gives advice about a key. send lists the members that send with it, have lists the members that accept
// it, and lack lists all other members.
func adviceOnKey(send, have, lack []lease.NodeID) string {
	switch {
	case len(lack) > 0 && len(send) > 0:
		return fmt.Sprintf("is used by %s to send, but not accepted by %s: add it there now.", fewOf(send), fewOf(lack))
	case len(lack) > 0:
		return fmt.Sprintf("is accepted by %s, but not by %s: if it is the new key, add it there; otherwise remove it everywhere.", fewOf(have), fewOf(lack))
	case len(send) == 0:
		return "is accepted by all members, but not used to send: if it is the new key, make it the first line; otherwise remove it."
	case len(send) < len(have):
		return fmt.Sprintf("is accepted by all members, and used by %s to send.", fewOf(send))
	}
	return "is the key that all members send with."
}

// fewOf lists up to five nodes.
func fewOf(ids []lease.NodeID) string {
	const most = 5
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, string(id))
	}
	if more := len(ids) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
