package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what this binary was built from, as --output json prints it.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, if it is known
	Modified bool   `json:"modified"`           // there were changes beside that
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildOf() build {
	b := build{Version: "(unknown)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, "(devel)")
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

// versionLine says the same to people.
func versionLine() string {
	b := buildOf()
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
	settings := []setting[clientOptions]{outputSetting("json prints one object")}
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Print what this binary was built from",
		Long:  "Print the version, the source revision, the Go release and the platform.",
		Example: `  roost version
  roost version --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := p.session(cmd.Flags(), settings)
			if err != nil {
				return err
			}
			if s.json {
				return s.printJSON(buildOf())
			}
			_, err = fmt.Fprintln(p.stdout, versionLine())
			return err
		},
	}
	addFlags(cmd, settings)
	return cmd
}
