package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/internal/release"
	"github.com/spf13/cobra"
)

// build describes what this binary was built from. build is also the JSON output of roost version.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, if known
	Modified bool   `json:"modified"`           // the source had uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildOf() build {
	info, _ := debug.ReadBuildInfo()
	return describe(release.Version, release.Commit, info)
}

// describe uses the release if there is one, and otherwise the build info, which can be nil. For
// roost@version and for a tagged commit in a clone, the go command records the version. For any other commit
// in a clone, it records only the revision.
func describe(release, commit string, info *debug.BuildInfo) build {
	b := build{Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info == nil {
		info = &debug.BuildInfo{Main: debug.Module{Version: "(unknown)"}}
	}
	b.Version = cmp.Or(release, info.Main.Version, "(devel)")
	b.Revision = commit
	if release != "" {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String describes the build in one line, for people.
func (b build) String() string {
	revision := ""
	if b.Revision != "" {
		revision = " " + b.Revision[:min(12, len(b.Revision))]
	}
	if b.Modified {
		revision += "+changes"
	}
	return fmt.Sprintf("roost %s%s %s %s/%s", b.Version, revision, b.Go, b.OS, b.Arch)
}

func (p *program) versionCommand() *cobra.Command {
	return p.localCommand(&cobra.Command{
		Use:   "version [flags]",
		Short: "Print what this binary was built from",
		Long:  "Print the version, the source revision, the Go release and the platform.",
		Example: `  roost version
  roost version --output json`,
		Args: takes(),
	}, "json prints one object", func(s *session.Session, _ []string) error {
		return s.Answer(buildOf(), nil, buildOf().String)
	})
}
