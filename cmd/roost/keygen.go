package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/spf13/cobra"
)

const keyBytes = 32

func (p *program) keygenCommand() *cobra.Command {
	var out string
	return p.withSettings(&cobra.Command{
		Use:   "keygen [--out FILE]",
		Short: "Make a key that encrypts gossip",
		Long: `Make a key of 32 random bytes, in base64. Give the same key to every node
(roost agent --key-file FILE): nodes without it can neither send to the cluster nor
read its messages.

A key file may hold several keys, one a line: the first is used to send, all are
understood. So a key is changed without a gap, each step on every node in turn:
add the new key as the second line; make it the first; remove the old one.`,
		Example: `  roost keygen --out roost.key        readable by you alone; never overwrites a file
  roost keygen > roost.key`,
		Args: cobra.NoArgs,
	}, []settings.Setting{
		{Name: "out", Arg: "FILE", Set: settings.Nonempty(&out), Usage: "create FILE with it, readable by you alone"},
	}, func(context.Context) error {
		key := make([]byte, keyBytes)
		_, _ = rand.Read(key) // never fails
		line := base64.StdEncoding.EncodeToString(key) + "\n"
		if out == "" {
			_, err := io.WriteString(p.stdout, line)
			return err
		}
		return writeNew(out, line)
	})
}

// writeNew creates a file that only its owner can read. It leaves an existing file as it
// is: a cluster may run with that key.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists; a key is never overwritten", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // half a key
	}
	return err
}
