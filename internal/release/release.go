// Package release says which version of roost a program has.
package release

import "runtime/debug"

const module = "github.com/roost-cluster/roost"

// Version is that of a release: scripts/release.sh sets it by -ldflags, since an unpacked source archive has no
// history. Any other build has what the go command recorded.
var Version string //nolint:gochecknoglobals // set by -ldflags

// Commit is that of a release, and set with Version.
var Commit string //nolint:gochecknoglobals // set by -ldflags

// Name returns the version of roost in this program: that of a tag, such as v1.2.3, the pseudo-version of a commit
// without a tag, or "" if the build does not say.
func Name() string {
	info, _ := debug.ReadBuildInfo()
	return nameOf(Version, info)
}

func nameOf(version string, info *debug.BuildInfo) string {
	if version == "" && info != nil {
		version = recorded(info)
	}
	if version == "(devel)" {
		return ""
	}
	return version
}

// recorded returns what the go command knows of roost, as the program itself or as one of its modules.
func recorded(info *debug.BuildInfo) string {
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		switch {
		case m.Path != module:
		case m.Replace != nil:
			return m.Replace.Version
		default:
			return m.Version
		}
	}
	return ""
}
