// Package release says which version of roost a program has.
package release

import (
	"regexp"
	"runtime/debug"
	"strings"
)

const module = "github.com/roost-cluster/roost"

// Version is that of a release: scripts/release.sh sets it by -ldflags, since an unpacked source archive has no
// history. Any other build has what the go command recorded.
var Version string //nolint:gochecknoglobals // set by -ldflags

// Commit is that of a release, and set with Version.
var Commit string //nolint:gochecknoglobals // set by -ldflags

// MaxBytes is the size of the longest name.
const MaxBytes = 11

// Name returns the version of roost in this program in at most 11 bytes: that of a tag, such as v1.2.3, or else the
// beginning of the commit, or else "".
func Name() string {
	info, _ := debug.ReadBuildInfo()
	return nameOf(Version, info)
}

// pseudo is the version that the go command gives a commit without a tag.
var pseudo = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})$`)

func nameOf(version string, info *debug.BuildInfo) string {
	var revision string
	if version == "" && info != nil {
		version, revision = recorded(info)
	}
	version, _, _ = strings.Cut(version, "+") // +dirty, +incompatible
	if m := pseudo.FindStringSubmatch(version); m != nil {
		version = m[1]
	}
	if version == "" || version == "(devel)" {
		version = revision
	}
	return version[:min(MaxBytes, len(version))]
}

// recorded returns what the go command knows of roost, as the program itself or as one of its modules.
func recorded(info *debug.BuildInfo) (version, revision string) {
	if info.Main.Path == module {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
		return info.Main.Version, revision
	}
	for _, m := range info.Deps {
		switch {
		case m.Path != module:
		case m.Replace != nil:
			return m.Replace.Version, ""
		default:
			return m.Version, ""
		}
	}
	return "", ""
}
