package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestVersions: if an application reports its version, or members run different versions of roost, every member shows
// the versions, and the metrics count them. Members also show the application's labels and address.
func TestVersions(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", brisk()...)
	agree(t, a)
	if out := succeeds(t, "members", "--addr", a.Base); strings.Contains(out, "VERSION") {
		t.Errorf("a column of versions that nobody states:\n%s", out)
	}
	b := agent(t, "b", append(brisk(), "--join", a.Gossip, "--app-version", "sfu 2026.11.24-rc1+build.7f3c9a2e",
		"--label", "rack=r1", "--api-addr", "10.0.0.7:3478")...)
	agree(t, a, b)
	m, err := a.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range m.Members {
		if want := map[string]string{"b": "sfu 2026.11.24-rc1+build.7f3c9a2e"}[string(n.ID)]; n.AppVersion != want {
			t.Errorf("%s states %q, want %q", n.ID, n.AppVersion, want)
		}
		if n.ID == "b" && (n.Labels["rack"] != "r1" || n.APIAddr != "10.0.0.7:3478") {
			t.Errorf("b has labels %v, its application is at %q", n.Labels, n.APIAddr)
		}
		if n.RoostVersion != m.Members[0].RoostVersion {
			t.Errorf("%s runs roost %q, another member %q", n.ID, n.RoostVersion, m.Members[0].RoostVersion)
		}
	}
	out := succeeds(t, "members", "--addr", a.Base)
	if !strings.Contains(out, "VERSION") || !strings.Contains(out, "sfu 2026.11.24-rc1+build.7f3c9a2e") {
		t.Errorf("%s", out)
	}
	eventually(t, func() error {
		got := values(t, metricsOf(t, b.Base))
		for _, version := range []string{"", "sfu 2026.11.24-rc1+build.7f3c9a2e"} {
			name := fmt.Sprintf(`roost_member_versions{app_version="%s",roost_version="%s"}`, version, m.Members[0].RoostVersion)
			if got[name] != 1 {
				return errors.New(name + " is not 1")
			}
		}
		return nil
	})
	code, _, problem := roost(t, "agent", "--app-version", strings.Repeat("x", 65))
	if code != exitUsage || !strings.Contains(problem, "--app-version") || !strings.Contains(problem, "at most 64") {
		t.Errorf("65 bytes: %d %s", code, problem)
	}
}
