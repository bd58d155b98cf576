package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// tree is a copy of this tree in its own repository. Its commit is ready to be released as v0.98.7.
type tree struct {
	t       *testing.T
	dir, at string
	env     []string
}

func copyTree(t *testing.T) *tree {
	t.Helper()
	c := &tree{t: t, dir: filepath.Join(t.TempDir(), "tree")}
	// Make the same commit in each copy, and ignore the user's Git settings.
	c.env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=2001-02-03T04:05:06Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=2001-02-03T04:05:06Z")
	// Don't build the image, even if this machine has a builder.
	c.env = append(c.env, "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH, "PATH="+without(t, "buildah", "podman", "docker"))
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c.sh(fmt.Sprintf("git -C %[1]q ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -C %[1]q -T - 2>/dev/null | tar -x",
		root))
	c.replace("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- A line.\n")
	c.sh("git init -q; scripts/prepare-release.sh v0.98.7")
	// The second time, it updates the date and the messages.
	c.sh("sed -i 's/^## .0.98.7. - .*/## [0.98.7] - 2001-02-03/' CHANGELOG.md; rm lease/testdata/wire/v0.98.7/join.hex; scripts/prepare-release.sh v0.98.7")
	if out, err := c.run("! grep -q 2001-02-03 CHANGELOG.md"); err != nil {
		t.Fatalf("the date of the section is not of today: %v\n%s", err, out)
	}
	c.sh("git add -A && git commit -qm release")
	c.at = strings.TrimSpace(c.sh("git rev-parse HEAD"))
	return c
}

// without returns a PATH in which these programs do not exist.
func without(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from) // some of PATH may not exist
		for _, e := range entries {
			if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	for _, p := range programs {
		if err := os.Remove(filepath.Join(dir, p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *tree) run(script string) (string, error) {
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *tree) sh(script string) string {
	c.t.Helper()
	out, err := c.run(script)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (c *tree) replace(file, old, with string) {
	c.t.Helper()
	path := filepath.Join(c.dir, file)
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), old) != 1 {
		c.t.Fatalf("%s has %d times %q, %v", file, strings.Count(string(b), old), old, err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), old, with)), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// TestReleaseRefused: the script does not release a tree that is not ready.
func TestReleaseRefused(t *testing.T) {
	t.Parallel()
	c := copyTree(t)
	for _, tt := range []struct{ before, version, want string }{
		{":", "0.98.7", "'0.98.7' is no version such as v0.1.0"},
		{":", "", "'' is no version such as v0.1.0"},
		{":", "v0.98.8", "CHANGELOG.md has no heading '## [0.98.8] - YYYY-MM-DD'"},
		{":", "v0.98.7-rc1", "CHANGELOG.md has no heading '## [0.98.7-rc1] - YYYY-MM-DD'"},
		{"touch new", "v0.98.7", "the tree has changes that are not committed"},
		{"rm new; mkdir -p dist/v0.98.7", "v0.98.7", "dist/v0.98.7 exists"},
		{"rmdir dist/v0.98.7; git tag v0.98.7; git commit -q --allow-empty -m later", "v0.98.7", "the tag v0.98.7 is at commit " + c.at},
		{
			"git tag -d v0.98.7; sed -i 's/^## .Unreleased.$/&\\n\\n- Late./' CHANGELOG.md; git commit -qam late", "v0.98.7",
			"CHANGELOG.md has lines under Unreleased",
		},
		{"sed -i '/^- Late.$/d; /^.0.98.7.: /d' CHANGELOG.md; git commit -qam unlinked", "v0.98.7", "CHANGELOG.md has no link for [0.98.7]"},
		{
			"git reset -q --hard " + c.at + "; sed -i 's/roost_v0.98.7/roost_v0.98.6/' docs/install.md; git commit -qam older", "v0.98.7",
			"docs/install.md is not of v0.98.7",
		},
		{
			"git reset -q --hard " + c.at + "; sed -i 's/roost:v0.98.7/roost:v0.98.6/' deploy/compose/compose.yaml; git commit -qam older", "v0.98.7",
			"deploy/compose/compose.yaml is not of v0.98.7",
		},
		{
			"git reset -q --hard " + c.at + "; sed -i 's/^appVersion: .*/appVersion: v0.98.6/' deploy/helm/roost/Chart.yaml; git commit -qam older",
			"v0.98.7", "deploy/helm/roost/Chart.yaml is not of v0.98.7",
		},
		{
			"sed -i 's/roost v0.98.7$/roost v0.98.6/' cluster/kubernetes/go.mod; git commit -qam older", "v0.98.7",
			"cluster/kubernetes/go.mod does not require roost v0.98.7",
		},
		{
			"sed -i 's/roost v0.98.7$/roost v0.98.6/' cluster/routing/routinggrpc/go.mod; git commit -qam older",
			"v0.98.7", "routinggrpc/go.mod does not require roost v0.98.7",
		},
		{
			"sed -i 's/roost v0.98.7$/roost v0.98.6/' cluster/clusterotel/go.mod; git commit -qam older",
			"v0.98.7", "clusterotel/go.mod does not require roost v0.98.7",
		},
		{
			"git reset -q --hard " + c.at + "; git rm -q lease/testdata/wire/v0.98.7/join.hex; git commit -qm incomplete",
			"v0.98.7", "lease/testdata/wire/v0.98.7 is no copy of lease/testdata/wire/next",
		},
	} {
		c.sh(tt.before)
		if out, err := c.run("scripts/release.sh '" + tt.version + "'"); err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s; release %q: %v, want %q\n%s", tt.before, tt.version, err, tt.want, out)
		}
	}
	c.sh("git reset -q --hard " + c.at + "; git tag v0.98.7")
	if out, err := c.run("scripts/prepare-release.sh v0.98.7"); err == nil || !strings.Contains(out, "v0.98.7 is released") {
		t.Errorf("a released version is prepared again: %v\n%s", err, out)
	}
}

// released is what the release script built for this platform: the output folder, and the unpacked archive.
type released struct{ dir, unpacked, commit string }

// releaseTwice releases one commit into two folders, in two different environments.
func releaseTwice(t *testing.T) (first, second released) {
	t.Helper()
	c := copyTree(t)
	first, second = released{filepath.Join(t.TempDir(), "out"), "", c.at}, released{filepath.Join(t.TempDir(), "out"), "", c.at}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	var wg sync.WaitGroup
	for _, script := range []string{
		"scripts/release.sh v0.98.7 " + first.dir,
		fmt.Sprintf("umask 077; export TZ=Asia/Tokyo GOFLAGS=-ldflags=-w GOAMD64=v2; git clone -q . %[1]s; cd %[1]s; scripts/release.sh v0.98.7 %[2]s",
			elsewhere, second.dir),
	} {
		wg.Go(func() {
			if out, err := c.run(script); err != nil {
				t.Errorf("release.sh: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	name := fmt.Sprintf("roost_v0.98.7_%s_%s", runtime.GOOS, runtime.GOARCH)
	root := t.TempDir()
	if out, err := exec.Command("bash", "-euc",
		fmt.Sprintf("cd %s; sha256sum --check SHA256SUMS; tar -xpf %s.tar.gz -C %s", first.dir, name, root)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first.unpacked = filepath.Join(root, name)
	return first, second
}

// checkArchive checks that the same commit results in the same archive everywhere. The binary must report its version,
// and the archive must include the licenses of all packages in the binary.
func checkArchive(t *testing.T, first, second released) {
	t.Helper()
	sums := make([]string, 2)
	for i, r := range []released{first, second} {
		b, err := os.ReadFile(filepath.Join(r.dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(b)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 5 {
		t.Errorf("two builds of one commit:\n%s%s", sums[0], sums[1])
	}
	out, err := exec.Command(filepath.Join(first.unpacked, "roost"), "version", "--output", "json").Output()
	want := build{Version: "v0.98.7", Revision: first.commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	var got build
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil || got != want {
		t.Errorf("roost version prints %+v, want %+v: %v", got, want, err)
	}
	// The binary grows to 33 MB if a package calls methods by names that the linker cannot see.
	const most = 25 << 20
	if info, err := os.Stat(filepath.Join(first.unpacked, "roost")); err != nil || info.Size() > most {
		t.Errorf("roost has %d bytes: %v; find the cause with go build -ldflags=-dumpdep, which marks it as <ReflectMethod>", info.Size(), err)
	}
	for file, has := range map[string]string{
		"LICENSE":              "Apache License",
		"README.md":            "# roost",
		"THIRD_PARTY_LICENSES": "==== github.com/hashicorp/memberlist v",
	} {
		b, err := os.ReadFile(filepath.Join(first.unpacked, file))
		info, problem := os.Stat(filepath.Join(first.unpacked, file))
		if problem != nil || info.Mode() != 0o644 || info.ModTime().UTC().Year() != 2001 {
			t.Errorf("%s: %v, %v", file, info, problem)
		}
		if !strings.Contains(string(b), has) {
			t.Errorf("%s does not have %q: %v", file, has, err)
		}
	}
	notes, err := os.ReadFile(filepath.Join(first.dir, "notes.md"))
	if err != nil || !regexp.MustCompile(`(?m)^### \w+$`).Match(notes) || regexp.MustCompile(`(?m)^## `).Match(notes) {
		t.Errorf("notes.md is not one section of CHANGELOG.md: %v\n%s", err, notes)
	}
}

// checkPackages checks that npm can install the packages, that they have the version of the release, and that Node.js
// can import them.
func checkPackages(t *testing.T, r released) {
	t.Helper()
	install := exec.Command("npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--silent",
		filepath.Join(r.dir, "roost-cluster-routing-0.98.7.tgz"), filepath.Join(r.dir, "roost-cluster-reconnect-0.98.7.tgz"))
	install.Dir = t.TempDir()
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm (scripts/deps.sh installs it): %v\n%s", err, out)
	}
	use := exec.Command("node", "--input-type=module", "-e", `
		import { RoutingClient } from "@roost-cluster/routing";
		import { Driver } from "@roost-cluster/reconnect";
		import { readFileSync } from "node:fs";
		const version = (name) => JSON.parse(readFileSync("node_modules/@roost-cluster/" + name + "/package.json")).version;
		console.log(RoutingClient.name, version("routing"), Driver.name, version("reconnect"));`)
	use.Dir = install.Dir
	if out, err := use.CombinedOutput(); err != nil || string(out) != "RoutingClient 0.98.7 Driver 0.98.7\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRoots: in an image without certificates, roost trusts the root certificates in its binary.
func TestRoots(t *testing.T) {
	const child = "ROOST_TEST_ROOTS"
	if os.Getenv(child) != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(pool.Subjects()); n < 100 { //nolint:staticcheck // all certificates of this pool are known here
			t.Fatalf("%d roots", n)
		}
		return
	}
	ctx := t.Context()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRoots$", "-test.timeout="+time.Minute.String())
	cmd.Env = append(os.Environ(), child+"=1", "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
