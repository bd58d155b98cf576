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

// maxWatchedBytes is how much of a file is read to notice that it has changed.
const maxWatchedBytes = 1 << 20

// Files are hashes of the content of files, by path. They use the content and not times or inode numbers,
// because Kubernetes replaces a symbolic link above all files of a secret at once, and not every file system
// sends notifications.
type Files map[string][sha256.Size]byte

// Note adds a file as it is now. A file that cannot be read has a hash of zeros, and so has a pipe, because
// it can only be read once.
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

// Now returns the same files as they are now.
func (f Files) Now() Files {
	now := make(Files, len(f))
	for path := range f {
		now.Note(path)
	}
	return now
}

// Read returns the files that the settings were read from, as they were before reading, so that a later
// change is noticed.
func (a *Agent) Read() Files { return a.files }

// note is called before a file is read.
func (a *Agent) note(path string) {
	if a.files == nil {
		a.files = make(Files)
	}
	if path != "" {
		a.files.Note(path)
	}
}

// WriteKeys atomically replaces the keys in a key file, and keeps its owner and mode.
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
		return fmt.Errorf("%s is no regular file", path)
	}
	var lines bytes.Buffer
	for _, k := range keys {
		line := base64.StdEncoding.EncodeToString(k)
		if string(k) == cluster.PlainText {
			line = cluster.PlainText
		}
		lines.WriteString(line + "\n")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".roost-keys-*") // only readable by its owner
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
