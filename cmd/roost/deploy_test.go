package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestSettingsReference generates docs/settings.md from the settings.
func TestSettingsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Settings of roost agent

A flag overrides its environment variable, which overrides the ` + "`--config`" + ` file, which overrides the
default. The file is YAML, and its keys are the names of the flags without the leading dashes. roost ignores an
empty variable. Write lists with commas between the values, or as YAML lists.

` + "`go test ./cmd/roost -run SettingsReference -update`" + ` writes this page.

`)
	for _, group := range new(settings.Agent).Groups() {
		fmt.Fprintf(&b, "## %s\n\n| flag | variable | default | |\n|---|---|---|---|\n", group.Title)
		for _, s := range group.Settings {
			value := strings.ReplaceAll(s.Arg, "|", `\|`)
			if value == "bool" {
				value = ""
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n",
				strings.TrimSpace("--"+s.Name+" "+value), settings.Variable(s.Name), s.Default, strings.ReplaceAll(s.Usage, "|", `\|`))
		}
		b.WriteString("\n")
	}
	golden(t, "../../docs/settings.md", strings.TrimSuffix(b.String(), "\n"))
}

// TestDeployment: roost knows the commands and settings of the files under deploy/.
func TestDeployment(t *testing.T) {
	for path, c := range map[string]struct {
		command string // matches the arguments with which the file runs roost
		wanted  int
	}{
		"kubernetes/roost.yaml": {`(?m)(?:command: \[/roost,|image: roost$[^-]*\bargs: \[)(.*)\]`, 2},
		"systemd/roost.service": {`(?m)^Exec\w+=\S*/roost (.*)$`, 1},
	} {
		b, err := os.ReadFile("../../deploy/" + path)
		if err != nil {
			t.Fatal(err)
		}
		commands := regexp.MustCompile(c.command).FindAllStringSubmatch(string(b), -1)
		if len(commands) != c.wanted {
			t.Errorf("%s runs %q, want %d commands", path, commands, c.wanted)
		}
		for _, m := range commands {
			if err := known(strings.Fields(strings.ReplaceAll(m[1], ",", " "))); err != nil {
				t.Errorf("%s runs roost %q: %v", path, m[1], err)
			}
		}
		for _, name := range regexp.MustCompile(`ROOST_[A-Z_]+`).FindAllString(string(b), -1) {
			if !slices.ContainsFunc(new(settings.Agent).Settings(), func(s settings.Setting) bool { return settings.Variable(s.Name) == name }) {
				t.Errorf("%s sets %s, which roost agent does not know", path, name)
			}
		}
	}
}

// TestKubernetesStarts starts the agents of the manifest and of each variant of the chart with their exact arguments
// and environment, except for addresses and folders of this machine. roost must also know the command that runs before
// they stop.
func TestKubernetesStarts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../internal/e2e/helm/testdata/agents.json") // written by a test in internal/e2e/helm
	if err != nil {
		t.Fatal(err)
	}
	var runs map[string]struct {
		Args, PreStop []string
		Env           map[string]string
	}
	if err := json.Unmarshal(b, &runs); err != nil || len(runs) < 5 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	dir := t.TempDir()
	for name, secret := range map[string]string{
		"gossip.key": succeeds(t, "keygen"), "http.token": succeeds(t, "keygen"), "redis.url": redistest.Start(t).URL(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here := strings.NewReplacer(
		"0.0.0.0:7946", "127.0.0.1:0",
		"0.0.0.0:8401", "127.0.0.1:0",
		"/etc/roost/", dir+"/",
		"calls:7946", "127.0.0.1:1",
		"sfu:7946", "127.0.0.1:1",
	)
	for name, r := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := known(r.PreStop[1:]); err != nil {
				t.Errorf("preStop %q: %v", r.PreStop, err)
			}
			cmd := exec.Command(agenttest.Binary(t))
			for _, arg := range r.Args {
				cmd.Args = append(cmd.Args, here.Replace(arg))
			}
			cmd.Env = append(agentproc.Environ(), "ROOST_BOOTSTRAP=true")
			for variable, value := range r.Env {
				cmd.Env = append(cmd.Env, variable+"="+here.Replace(value))
			}
			p := agenttest.Start(t, cmd)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			addrs, err := p.Await(ctx)
			if err != nil {
				t.Fatal(err)
			}
			members, err := (&clusterhttp.Client{Base: addrs.HTTP}).Members(ctx)
			if err != nil || len(members.Members) != 1 || members.Members[0].ID != "calls-0" || members.Members[0].Zone != "zone-a" {
				t.Fatalf("members %+v, %v", members, err)
			}
			ip := "127.0.0.1"
			if strings.HasSuffix(name, "IPv6") {
				ip = "[::1]"
			}
			if m := members.Members[0]; m.Addr != ip+":7946" || m.APIAddr != "" && m.APIAddr != ip+":3478" {
				t.Errorf("gossip at %s, the program at %q; want %s", m.Addr, m.APIAddr, ip)
			}
		})
	}
}

// TestCredentials: for every setting whose value is a file with a secret, the systemd unit has a credential line,
// active or commented out.
func TestCredentials(t *testing.T) {
	b, err := os.ReadFile("../../deploy/systemd/roost.service")
	if err != nil {
		t.Fatal(err)
	}
	unit, secrets := string(b), 0
	for _, s := range new(settings.Agent).Settings() {
		if !strings.HasSuffix(s.Name, "-file") && !strings.HasSuffix(s.Name, "-tls-key") {
			continue
		}
		secrets++
		m := regexp.MustCompile(`(?m)^#?Environment=(?:\S+ )?` + settings.Variable(s.Name) + `=%d/(\S+)$`).FindStringSubmatch(unit)
		if m == nil || !regexp.MustCompile(`(?m)^#?LoadCredential=`+m[1]+`:/etc/roost/`+m[1]+`$`).MatchString(unit) {
			t.Errorf("the unit does not load --%s as a credential: %q", s.Name, m)
		}
	}
	if secrets < 5 {
		t.Errorf("%d secrets", secrets)
	}
	for _, line := range []string{"UMask=0077", "StartLimitIntervalSec=0", "Restart=on-failure"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit has no %s", line)
		}
	}
}
