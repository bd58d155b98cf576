// Package compose tests the Compose file. compose-go reads it here in the same way as docker compose.
package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

func load(t *testing.T) *types.Project {
	t.Helper()
	here, err := filepath.Abs("../testdata/deploy/compose") // a link, see internal/e2e/helm
	if err != nil {
		t.Fatal(err)
	}
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  here,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(here, "compose.yaml")}},
		Environment: types.Mapping{"ROOST_KEY": "k", "ROOST_TOKEN": "t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// agents are the services that run roost.
func agents(t *testing.T, p *types.Project) []types.ServiceConfig {
	t.Helper()
	var all []types.ServiceConfig
	for _, name := range p.ServiceNames() {
		if s := p.Services[name]; s.Image == "roost" {
			all = append(all, s)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d agents", len(all))
	}
	return all
}

// TestServices: other machines can reach no service, mounted files exist, and all images have a version.
func TestServices(t *testing.T) {
	p := load(t)
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %d to %q", name, port.Target, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, read-only: %v; %v", name, v.Source, v.ReadOnly, err)
			}
		}
		if s.Build == nil && !regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?$`).MatchString(s.Image) {
			t.Errorf("%s is of the image %s", name, s.Image)
		}
		for needed := range s.DependsOn {
			if _, ok := p.Services[needed]; !ok {
				t.Errorf("%s depends on %s", name, needed)
			}
		}
	}
}

// TestAgents: the agents only have settings that roost knows, join each other, and read secrets that their user is
// allowed to read.
func TestAgents(t *testing.T) {
	p, known := load(t), read(t, "../../../docs/settings.md") // a test of cmd/roost writes it
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(read(t, "../testdata/deploy/docker/Dockerfile"))
	var join []string
	for _, s := range agents(t, p) {
		join = append(join, s.Name+":7946")
	}
	for _, s := range agents(t, p) {
		said := make(map[string]string)
		for _, arg := range s.Command[1:] {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			said[name] = value
			if !regexp.MustCompile("(?m)^\\| `--" + regexp.QuoteMeta(name) + "[ `]").MatchString(known) {
				t.Errorf("roost agent has no setting %s", arg)
			}
			if !strings.HasPrefix(value, "/run/secrets/") {
				continue
			}
			secret := filepath.Base(value)
			i := slices.IndexFunc(s.Secrets, func(c types.ServiceSecretConfig) bool {
				return c.Source == secret && c.Target == "" || c.Target == value
			})
			if i < 0 {
				t.Fatalf("%s has no secret for %s: %+v", s.Name, arg, s.Secrets)
			}
			c := s.Secrets[i]
			if c.UID != user[1] || c.GID != user[2] || c.Mode == nil || *c.Mode != 0o400 || p.Secrets[secret].Environment == "" || s.ReadOnly {
				t.Errorf("%s: the secret is %+v, of %+v; the user is %q", arg, c, p.Secrets[secret], user)
			}
		}
		if s.Command[0] != "agent" || said["join"] != strings.Join(join, ",") || s.Hostname != s.Name {
			t.Errorf("%s, with the host name %s, runs %q", s.Name, s.Hostname, s.Command)
		}
		if said["redis"] != "redis://redis:6379/0" || p.Services["redis"].Name != "redis" || len(said) != len(s.Command)-1 {
			t.Errorf("%s runs %q", s.Name, s.Command)
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil || filepath.Base(s.Build.Context) != "bin" {
			t.Errorf("it is built from %s: %v", s.Build.Context, err)
		}
	}
}

// mounted returns a folder with the files that a service mounts below at.
func mounted(t *testing.T, s types.ServiceConfig, at string) string {
	t.Helper()
	dir := t.TempDir()
	for _, v := range s.Volumes {
		if rel, err := filepath.Rel(at, v.Target); err == nil && v.Type == types.VolumeTypeBind && !strings.HasPrefix(rel, "..") {
			to := filepath.Join(dir, rel)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, []byte(read(t, v.Source)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestPrometheus lets Prometheus check its files where they are mounted, and checks that Prometheus scrapes all agents
// as one job.
func TestPrometheus(t *testing.T) {
	p := load(t)
	dir := mounted(t, p.Services["prometheus"], "/etc/prometheus")
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", dir+"/prometheus.yml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2 rule files found") {
		t.Errorf("promtool: %v (is it missing? run scripts/deps.sh)\n%s", err, out)
	}
	var config struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, dir+"/prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range agents(t, p) {
		want = append(want, fmt.Sprintf("%s:%d", s.Name, s.Ports[0].Target))
	}
	if got := config.ScrapeConfigs[0].StaticConfigs[0].Targets; len(config.ScrapeConfigs) != 1 || !slices.Equal(got, want) {
		t.Errorf("Prometheus scrapes %q, want %q", got, want)
	}
}

// TestGrafana: Grafana finds the dashboard where it is mounted, and reads data from Prometheus.
func TestGrafana(t *testing.T) {
	p := load(t)
	s := p.Services["grafana"]
	dir := mounted(t, s, "/etc/grafana")
	var sources struct {
		Datasources []struct {
			Type, URL string
			IsDefault bool
		}
	}
	var boards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	for file, into := range map[string]any{"datasources": &sources, "dashboards": &boards} {
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join(dir, "provisioning", file, "roost.yml"))), into); err != nil {
			t.Fatal(err)
		}
	}
	if d := sources.Datasources; len(d) != 1 || d[0].Type != "prometheus" || !d[0].IsDefault ||
		d[0].URL != "http://prometheus:9090" || p.Services["prometheus"].Ports[0].Target != 9090 {
		t.Errorf("its sources are %+v", d)
	}
	if b := boards.Providers; len(b) != 1 || b[0].Type != "file" {
		t.Fatalf("its dashboards are %+v", b)
	}
	path := boards.Providers[0].Options.Path
	found, err := filepath.Glob(filepath.Join(mounted(t, s, path), "*.json"))
	if err != nil || len(found) != 1 ||
		*s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] != filepath.Join(path, filepath.Base(found[0])) {
		t.Errorf("below %s are %q, %v; it begins with %s", path, found, err, *s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
	}
}
