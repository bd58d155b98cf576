//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestAlertOfALostMember: a Prometheus with the shipped configuration and rules scrapes three agents. The test kills
// one agent. Within 90 s, the alert for that agent must fire, and no other alert may fire.
func TestAlertOfALostMember(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute, by the rules")
	}
	t.Parallel()
	a := agent(t, "a")
	b := agent(t, "b", "--join", a.Gossip)
	c := agent(t, "c", "--join", a.Gossip)
	agree(t, a, b, c)
	alerts := prometheus(t, shipped(t, a.Base, b.Base, c.Base))
	eventually(t, func() error {
		if up := query(t, alerts, "count(roost_node_info)"); up != "3" {
			return fmt.Errorf("%q agents are scraped", up)
		}
		return nil
	})

	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	const within = 90 * time.Second
	killed := time.Now()
	for {
		firing := firing(t, alerts)
		if len(firing) > 0 {
			want := "RoostMemberLost: Nodes of roost that ended without a leave and have not returned: 1."
			if len(firing) > 1 || firing[0] != want {
				t.Errorf("alerts: %q, want %q", firing, want)
			}
			t.Logf("alert after %v", time.Since(killed).Round(time.Second))
			return
		}
		if time.Since(killed) > within {
			t.Fatalf("no alert within %v; roost_lost_members: %s", within, query(t, alerts, "sum(roost_lost_members)"))
		}
		pause := time.NewTimer(time.Second)
		<-pause.C
	}
}

// shipped returns the configuration of deploy/ with agents as targets.
func shipped(t *testing.T, agents ...string) string {
	t.Helper()
	const compose, placeholder = "../../deploy/compose/prometheus.yml", "[a:8401, b:8401, c:8401]"
	config, err := os.ReadFile(compose)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), placeholder) {
		t.Fatalf("%s has no targets %s", compose, placeholder)
	}
	return strings.Replace(string(config), placeholder, "["+strings.Join(agents, ", ")+"]", 1)
}

// prometheus starts a server with a configuration and the rules of deploy/, and returns the URL of its API.
func prometheus(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		rules, err := os.ReadFile(filepath.Join("../../deploy/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), rules, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v: run scripts/deps.sh", err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t)))
	agenttest.Start(t, exec.CommandContext(t.Context(), program, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr, "--log.level", "warn"))
	eventually(t, func() error {
		resp, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/-/ready: %s", resp.Status)
		}
		return nil
	})
	return "http://" + addr + "/api/v1"
}

// firing returns the firing alerts with their summaries.
func firing(t *testing.T, api string) (all []string) {
	t.Helper()
	var answer struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	get(t, api+"/alerts", &answer)
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			all = append(all, a.Labels["alertname"]+": "+a.Annotations["summary"])
		}
	}
	return all
}

// query returns the value of an expression that yields one sample. If it yields none, query returns "".
func query(t *testing.T, api, expr string) string {
	t.Helper()
	all := vector(t, api, expr)
	if len(all) != 1 {
		return ""
	}
	return all[0]
}

// vector returns the values of an expression.
func vector(t *testing.T, api, expr string) (all []string) {
	t.Helper()
	var answer struct {
		Result []struct{ Value [2]any }
	}
	get(t, api+"/query?query="+url.QueryEscape(expr), &answer)
	for _, r := range answer.Result {
		all = append(all, fmt.Sprint(r.Value[1]))
	}
	return all
}

// get decodes the data of a response from Prometheus.
func get(t *testing.T, from string, data any) {
	t.Helper()
	resp, err := http.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", from, resp.Status, err)
	}
}
