package settings

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/roost-cluster/roost/cluster"
)

// maxWatchedBytes limits how many bytes of a file are read to detect a change.
const maxWatchedBytes = 1 << 20

// Files maps paths to hashes of the content of the files. Changes are detected by content, because times and
// inode numbers are not reliable: Kubernetes updates all files of a secret at once by replacing a symbolic
// link above them. Notifications are not used, because some file systems do not send them.
type Files map[string][sha256.Size]byte

// Note records the current hash of a file. The hash is zero if the file cannot be read, and also for a pipe,
// because a pipe can be read only once.
func (f Files) Note(path string) {
	f[path] = [sha256.Size]byte{}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(file, maxWatchedBytes)); err == nil {
		f[path] = [sha256.Size]byte(hash.Sum(nil))
	}
}

// Now returns the current hashes of the same files.
func (f Files) Now() Files {
	now := make(Files, len(f))
	for path := range f {
		now.Note(path)
	}
	return now
}

// Read returns the files that the settings were read from. The hashes were computed before the files were
// read, so a change during reading is noticed too.
func (a *Agent) Read() Files { return a.files }

// note records the hash of a file. note must be called before the file is read.
func (a *Agent) note(path string) {
	if a.files == nil {
		a.files = make(Files)
	}
	if path != "" {
		a.files.Note(path)
	}
}

// WriteKeys atomically replaces the keys in a key file. The file keeps its owner and mode.
func WriteKeys(path string, keys [][]byte) (err error) {
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	was, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !was.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	var lines bytes.Buffer
	for _, k := range keys {
		line := base64.StdEncoding.EncodeToString(k)
		if string(k) == cluster.PlainText {
			line = cluster.PlainText
		}
		lines.WriteString(line + "\n")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".roost-keys-*") // readable only by its owner
	if err != nil {
		return err
	}
	_, err = f.Write(lines.Bytes())
	if err = errors.Join(err, giveAway(f, was), f.Chmod(was.Mode().Perm()), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
