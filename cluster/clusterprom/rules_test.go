package clusterprom

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	rules     = "../../deploy/prometheus/"
	dashboard = "../../deploy/grafana/roost.json"
)

// promtool runs Prometheus' promtool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v (is it missing? run scripts/deps.sh)\n%s", args, err, out)
	}
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", rules+"recording.yml", rules+"alerts.yml")
	promtool(t, "test", "rules", rules+"alerts_test.yml", rules+"hours_test.yml")
}

// A rule is an alert or a recording rule.
type rule struct {
	Alert, Record, Expr string
	Labels              map[string]string
	Annotations         map[string]string
}

func readRules(t *testing.T, file string) (all []rule) {
	t.Helper()
	var doc struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, rules+file)), &doc); err != nil {
		t.Fatal(err)
	}
	for _, g := range doc.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", file)
	}
	return all
}

// TestOneThreshold: the alert and the dashboard use the same threshold for an uneven balance as the advice of the
// doctor, the page, the log and the commands.
func TestOneThreshold(t *testing.T) {
	advises := func(cv float64) bool {
		return placement.Balance{Counts: map[lease.NodeID]int{"a": 500, "b": 524}, MaxMean: 1, CV: cv}.Advice() != ""
	}
	const uneven = 0.15
	if advises(uneven) || !advises(uneven+1e-9) {
		t.Errorf("the advice does not begin above %v", uneven)
	}
	var alerts []string
	for _, r := range readRules(t, "alerts.yml") {
		if r.Alert == "RoostUneven" {
			alerts = append(alerts, r.Expr)
		}
	}
	if len(alerts) != 1 || !strings.HasSuffix(alerts[0], fmt.Sprint("roost_balance_cv_ratio) > ", uneven)) {
		t.Errorf("the alerts have %q", alerts)
	}
	type panel struct {
		Targets     []struct{ Expr string }
		FieldConfig struct {
			Defaults struct {
				Thresholds struct{ Steps []struct{ Value *float64 } }
			}
		}
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if steps := p.FieldConfig.Defaults.Thresholds.Steps; strings.Contains(target.Expr, "roost_balance_cv_ratio") {
				if shown++; len(steps) != 2 || *steps[1].Value != uneven {
					t.Errorf("the dashboard's thresholds of %s are %+v", target.Expr, steps)
				}
			}
		}
	}
	if shown == 0 {
		t.Error("the dashboard does not show the balance")
	}
}

// TestRunbooks: every alert has a summary and a link to an existing section, every section belongs to an alert, and
// every alert fires in a test.
func TestRunbooks(t *testing.T) {
	tests := read(t, rules+"alerts_test.yml") + read(t, rules+"hours_test.yml")
	sections := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^## (Roost\w+)$`).FindAllStringSubmatch(read(t, docs+"runbooks.md"), -1) {
		sections[m[1]] = true
	}
	for _, r := range readRules(t, "alerts.yml") {
		if !sections[r.Alert] {
			t.Errorf("docs/runbooks.md has no section %s", r.Alert)
		}
		delete(sections, r.Alert)
		if want := "https://github.com/roost-cluster/roost/blob/main/docs/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s links to %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
			t.Errorf("%s has no summary, or its runbook no steps", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
			t.Errorf("%s fires in no test", r.Alert)
		}
	}
	for name := range sections {
		t.Errorf("docs/runbooks.md has a section %s, and there is no such alert", name)
	}
}

// TestNamesExist: the rules and the dashboard use only metrics and labels that exist.
func TestNamesExist(t *testing.T) {
	known := exposed(t)
	exprs := make(map[string]string)
	for _, r := range append(readRules(t, "recording.yml"), readRules(t, "alerts.yml")...) {
		exprs[r.Alert+r.Record] = r.Expr
		if r.Record != "" {
			known[r.Record] = map[string][]string{}
		}
	}
	shown := panels(t)
	maps.Copy(exprs, shown)
	for _, where := range slices.Sorted(maps.Keys(exprs)) {
		for _, problem := range unknown(exprs[where], known) {
			t.Errorf("%s: %s, in %s", where, problem, exprs[where])
		}
	}
	for _, file := range []string{dashboard, docs + "runbooks.md"} {
		for _, name := range regexp.MustCompile(`[\w:]*roost_[\w:]+`).FindAllString(read(t, file), -1) {
			if known[name] == nil && !isLabel(name, known) {
				t.Errorf("%s speaks of %s, which does not exist", file, name)
			}
		}
	}
	// The dashboard's expressions are written as rules, so that promtool can check them.
	var asRules strings.Builder
	asRules.WriteString("groups: [{name: dashboard, rules: [\n")
	fill := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", "x", "$instance", "x")
	for _, where := range slices.Sorted(maps.Keys(shown)) {
		fmt.Fprintf(&asRules, "{record: panel, labels: {where: %q}, expr: %q},\n", where, fill.Replace(shown[where]))
	}
	asRules.WriteString("]}]\n")
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(asRules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// TestEveryMetricHasAPanel: if the dashboard does not show a metric, the test must list a reason.
func TestEveryMetricHasAPanel(t *testing.T) {
	hidden := map[string]string{
		"roost_node_info":              "its labels are the variables of the dashboard",
		"roost_table_version":          "it grows with each change, and a panel counts the changes",
		"roost_balance_max_mean_ratio": "the coefficient of variation answers the same question, and has the alert",
		"roost_lease_age_seconds":      "the 99th percentile is on a panel; the histogram is for other percentiles",
		"roost_rooms_evacuating":       "an evacuation shows by the rooms that are left",
	}
	queries := slices.Collect(maps.Values(panels(t)))
	for _, r := range readRules(t, "recording.yml") { // a panel can show a metric via a recording rule
		if slices.ContainsFunc(queries, func(q string) bool { return strings.Contains(q, r.Record) }) {
			queries = append(queries, r.Expr)
		}
	}
	shown := make(map[string]bool)
	for _, q := range queries {
		for _, m := range metricName.FindAllStringSubmatch(q, -1) {
			shown[m[1]] = true
		}
	}
	for name := range exposed(t) {
		base := regexp.MustCompile("_(sum|count|bucket)$").ReplaceAllString(name, "")
		if !strings.HasPrefix(name, "roost_") || base != name {
			continue
		}
		visible := shown[name] || shown[name+"_sum"] || shown[name+"_bucket"]
		if why := hidden[name]; visible && why != "" {
			t.Errorf("%s is on a panel, and has the reason %q why it is not", name, why)
		} else if !visible && why == "" {
			t.Errorf("%s is on no panel, without a reason", name)
		}
		delete(hidden, name)
	}
	for name := range hidden {
		t.Errorf("there is no metric %s", name)
	}
}

// TestUnknownIsFound: the function unknown finds the problems that TestNamesExist looks for.
func TestUnknownIsFound(t *testing.T) {
	known := exposed(t)
	known["job:roost_members:max"] = map[string][]string{}
	for expr, problems := range map[string]int{
		`rate(roost_heartbeats_sent_total[5m])`:                            0,
		`job:roost_members:max > 1`:                                        0,
		`roost_members{state="active",job="x"}`:                            0,
		`roost_members{state=~"active|draining"}`:                          0,
		`process_cpu_seconds_total + go_goroutines`:                        0,
		`rate(roost_lookup_duration_seconds_sum[5m])`:                      0,
		`max by (roost_version) (roost_member_versions)`:                   0,
		`max by (roost_versions) (roost_member_versions)`:                  1,
		`roost_heartbeats_send_total`:                                      1,
		`rate(roost_members_sum[5m])`:                                      1,
		`job:roost_members:min`:                                            1,
		`roost_members{state="actve"}`:                                     1,
		`roost_members{stat="active"}`:                                     1,
		`roost_members{state=~"active|drained"}`:                           1,
		`process_cpu_second_total + go_gorotines`:                          2,
		`sum by (state) (roost_members{phase="active"}) / roost_partition`: 2,
	} {
		if got := unknown(expr, known); len(got) != problems {
			t.Errorf("%s: %q, want %d problems", expr, got, problems)
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b((?:\w+:)*(?:roost|go|process)_\w+(?::\w+)*)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`)
)

// unknown returns the names in an expression that do not exist.
func unknown(expr string, known map[string]map[string][]string) (problems []string) {
	for _, m := range metricName.FindAllStringSubmatch(expr, -1) {
		labels, ok := known[m[1]]
		if !ok {
			if !isLabel(m[1], known) {
				problems = append(problems, "no metric "+m[1])
			}
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if name := l[1]; name == "job" || name == "instance" { // Prometheus adds these
				continue
			}
			for value := range strings.SplitSeq(l[3], "|") {
				if !slices.Contains(labels[l[1]], value) {
					problems = append(problems, fmt.Sprintf("%s has no %s=%q", m[1], l[1], value))
				}
			}
		}
	}
	return problems
}

// isLabel reports whether a name is a label's name, such as roost_version.
func isLabel(name string, known map[string]map[string][]string) bool {
	for _, labels := range known {
		if _, ok := labels[name]; ok {
			return true
		}
	}
	return false
}

// panels returns the expressions of the dashboard.
func panels(t *testing.T) map[string]string {
	t.Helper()
	var doc struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &doc); err != nil {
		t.Fatal(err)
	}
	exprs := make(map[string]string)
	for _, p := range doc.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q has no expression", p.Title)
		}
		for _, target := range p.Targets {
			exprs[p.Title+" "+target.RefID] = target.Expr
		}
	}
	if len(exprs) < 20 {
		t.Fatalf("the dashboard has %d expressions", len(exprs))
	}
	return exprs
}
