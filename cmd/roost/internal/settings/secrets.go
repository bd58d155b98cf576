package settings

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/roost-cluster/roost/cluster"
)

// maxSecretBytes limits how much of a file is read, in case the path is wrong and names, for example, a
// device.
const maxSecretBytes = 4096

// readSecret returns the content of a file without surrounding space. warning is not empty if other users can
// read the file. Errors never contain any of the content.
func readSecret(path string) (content []byte, warning string, err error) {
	if path == "" {
		return nil, "", errors.New("the value is empty")
	}
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if exposed(info) {
		warning = exposure(path, info)
	}
	content, err = io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, warning, err
	}
	if len(content) > maxSecretBytes {
		return nil, warning, fmt.Errorf("the file has more than %d bytes, which is too long for a secret", maxSecretBytes)
	}
	return bytes.TrimSpace(content), warning, nil
}

func exposure(path string, info os.FileInfo) string {
	return fmt.Sprintf("other users can read the secret in %s (mode %#o); chmod 600 %s", path, info.Mode().Perm(), path)
}

// secret returns a setter that passes the content of a file to use.
func (a *Agent) secret(use func([]byte) error) func(path string) error {
	return func(path string) error {
		a.note(path)
		b, warning, err := readSecret(path)
		if warning != "" {
			a.Warnings = append(a.Warnings, warning)
		}
		if err != nil {
			return err
		}
		return use(b)
	}
}

func (a *Agent) setKeyFile(path string) error {
	a.KeyFile = path
	a.note(path)
	keys, warning, err := Keys(path)
	if warning != "" {
		a.Warnings = append(a.Warnings, warning)
	}
	if err == nil {
		a.Cluster.Key, a.Cluster.OldKeys = keys[0], keys[1:]
	}
	return err
}

// Keys reads one or more gossip keys, one per line. The first key encrypts outgoing messages. A line with the
// word plain means cluster.PlainText. warning is not empty if other users can read the file.
func Keys(path string) (keys [][]byte, warning string, err error) {
	b, warning, err := readSecret(path)
	if err != nil {
		return nil, warning, err
	}
	for line := range bytes.Lines(b) {
		k, err := decodeKey(bytes.TrimSpace(line))
		if err != nil {
			return nil, warning, fmt.Errorf("line %d: %w", len(keys)+1, err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, warning, errors.New("the key has 0 bytes; it must have 16, 24 or 32")
	}
	return keys, warning, nil
}

func setTokens(to *[]string) func([]byte) error {
	return func(b []byte) (err error) {
		*to, err = decodeTokens(b)
		return err
	}
}

// TLS names the PEM files that an agent uses to serve HTTPS.
type TLS struct {
	Cert, Key string // both or neither
	ClientCA  string // CA of the client certificates that are required; may be empty
}

// CertPool reads CA certificates from a PEM file.
func CertPool(path string) (*x509.CertPool, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}

func decodeKey(b []byte) ([]byte, error) {
	if string(b) == cluster.PlainText {
		return b, nil
	}
	key, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return nil, errors.New("the file does not contain a key in base64; generate one with roost keygen")
	}
	switch len(key) {
	case 16, 24, 32:
		return key, nil
	}
	return nil, fmt.Errorf("the key has %d bytes; it must have 16, 24 or 32", len(key))
}

// Token reads the first bearer token in a file. warning is not empty if other users can read the file.
func Token(path string) (token, warning string, err error) {
	b, warning, err := readSecret(path)
	if err != nil {
		return "", warning, err
	}
	tokens, err := decodeTokens(b)
	if err != nil {
		return "", warning, err
	}
	return tokens[0], warning, nil
}

// decodeTokens parses one or more tokens, one per line.
func decodeTokens(b []byte) (tokens []string, err error) {
	for line := range bytes.Lines(b) {
		token, err := decodeToken(bytes.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	if len(tokens) == 0 {
		return nil, errors.New("the file is empty")
	}
	return tokens, nil
}

func decodeToken(b []byte) (string, error) {
	if len(b) == 0 {
		return "", errors.New("a line is empty")
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return "", errors.New("a token is one word of visible ASCII, and each token is on its own line")
		}
	}
	return string(b), nil
}
