package release

import (
	"runtime/debug"
	"testing"
)

// Name works for a release, a commit without a tag, a clone, and roost inside another program.
func TestName(t *testing.T) {
	main := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: module, Version: version}}
	}
	within := func(m debug.Module) *debug.BuildInfo {
		m.Path = module
		return &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/sfu", Version: "v9.9.9"},
			Deps: []*debug.Module{{Path: "x", Version: "v7.7.7"}, &m},
		}
	}
	for want, c := range map[string]struct {
		version string
		info    *debug.BuildInfo
	}{
		"v1.2.3":       {"v1.2.3", main("(devel)")},
		"v1.2.4+dirty": {"", main("v1.2.4+dirty")},
		"v1.2.4-0.20261124165707-0123456789bc+dirty": {"", main("v1.2.4-0.20261124165707-0123456789bc+dirty")},
		"v1.2.5":         {"", within(debug.Module{Version: "v1.2.5"})},
		"v1.2.6":         {"", within(debug.Module{Version: "v1.2.5", Replace: &debug.Module{Version: "v1.2.6"}})},
		"v1.22.333-rc.1": {"", within(debug.Module{Version: "v1.22.333-rc.1"})},
		"":               {"", within(debug.Module{Version: "v1.2.5", Replace: &debug.Module{Path: "../"}})},
	} {
		if got := nameOf(c.version, c.info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, info := range []*debug.BuildInfo{nil, {}, main("(devel)")} {
		if got := nameOf("", info); got != "" {
			t.Errorf("without build info %q", got)
		}
	}
}
