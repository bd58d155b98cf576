package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"
)

// maxSecretBytes keeps a wrong path, such as that of a device, from being read
// for ever.
const maxSecretBytes = 4096

// readSecret returns the content of a file without surrounding space, and a
// warning if others can read it. No error shows any of the content.
func readSecret(path string) (content []byte, warning string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	// Windows has no such bits and makes them up.
	if mode := info.Mode().Perm(); mode&0o044 != 0 && runtime.GOOS != "windows" {
		warning = fmt.Sprintf("other users can read the secret in %s (mode %#o); chmod 600 %s", path, mode, path)
	}
	content, err = io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, warning, err
	}
	if len(content) > maxSecretBytes {
		return nil, warning, fmt.Errorf("the file has more than %d bytes: that is no secret", maxSecretBytes)
	}
	return bytes.TrimSpace(content), warning, nil
}

// decodeKeys returns the gossip keys that a key file holds, one a line. The first
// is the one to send with.
func decodeKeys(b []byte) (key []byte, old [][]byte, err error) {
	var keys [][]byte
	for line := range bytes.Lines(b) {
		k, err := decodeKey(bytes.TrimSpace(line))
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, nil, errors.New("the key has 0 bytes; it must have 16, 24 or 32")
	}
	return keys[0], keys[1:], nil
}

func decodeKey(b []byte) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return nil, errors.New("the file does not hold a key in base64; roost keygen makes one")
	}
	switch len(key) {
	case 16, 24, 32:
		return key, nil
	}
	return nil, fmt.Errorf("the key has %d bytes; it must have 16, 24 or 32", len(key))
}

// decodeToken returns the bearer token that a token file holds.
func decodeToken(b []byte) (string, error) {
	if len(b) == 0 {
		return "", errors.New("the file is empty")
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return "", errors.New("a token is one word of visible ASCII")
		}
	}
	return string(b), nil
}

const keyBytes = 32

func (p *program) keygenCommand() *cobra.Command {
	type options struct{ out string }
	settings := []setting[options]{{
		name: "out", arg: "FILE", usage: "create FILE with it, readable by you alone",
		apply: setNonempty(func(o *options) *string { return &o.out }),
	}}
	cmd := &cobra.Command{
		Use:   "keygen [--out FILE]",
		Short: "Make a key that encrypts gossip",
		Long: `Make a key of 32 random bytes, in base64. Give the same key to every node
(roost agent --key-file FILE): nodes without it are neither heard nor understood.

A key file may hold several keys, one a line: the first is used to send, all are
understood. So a key is changed without a gap, each step on every node in turn:
add the new key as the second line; make it the first; remove the old one.`,
		Example: `  roost keygen --out roost.key        readable by you alone; never overwrites a file
  roost keygen > roost.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var o options
			if _, faults := resolve(&o, settings, layers{flags: cmd.Flags(), getenv: p.getenv}, nil); len(faults) > 0 {
				return faulty(faults)
			}
			key := make([]byte, keyBytes)
			_, _ = rand.Read(key) // never fails
			line := base64.StdEncoding.EncodeToString(key) + "\n"
			if o.out == "" {
				_, err := io.WriteString(p.stdout, line)
				return err
			}
			return writeNew(o.out, line)
		},
	}
	addFlags(cmd, settings)
	return cmd
}

// writeNew creates a file that only its owner reads. An existing file stays as
// it is: it may hold the key that a cluster runs with.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
