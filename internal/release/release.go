// Package release returns the version of roost that a program contains.
package release

import "runtime/debug"

const module = "github.com/roost-cluster/roost"

// Version is the version of a release build. scripts/release.sh sets it with -ldflags, because an unpacked
// source archive has no Git history. In other builds, Version is empty and Name uses the version that the go
// command recorded.
var Version string //nolint:gochecknoglobals // set by -ldflags

// Commit is the Git commit of a release build. scripts/release.sh sets it together with Version.
var Commit string //nolint:gochecknoglobals // set by -ldflags

// Name returns the version of roost in this program: a tag such as v1.2.3, the pseudo-version of a commit
// without a tag, or "" if the build has no version.
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

// recorded returns the version that the go command recorded for roost. In info, roost is either the main
// module or a dependency.
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
