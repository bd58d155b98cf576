// Command sbom writes the software bill of materials of a release to standard output, in JSON of SPDX 2.3: the archives,
// and the modules that the binary in each of them contains. scripts/release.sh runs it.
//
//	sbom VERSION COMMIT SECONDS ARCHIVES FOLDER...
//
// SECONDS is the time of the commit since 1970. Each folder has the files of the archive ARCHIVES/FOLDER.tar.gz. The
// modules are those that the go command recorded in the binary, and their licenses come from THIRD_PARTY_LICENSES. The
// output depends on nothing else, so the same commit has the same bill on any machine.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 5 {
		return errors.New("needs VERSION COMMIT SECONDS ARCHIVES FOLDER")
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	b := newBill(args[0], args[1], time.Unix(seconds, 0))
	for _, folder := range args[4:] {
		if err := b.addArchive(args[3], folder); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(b.document())
}
