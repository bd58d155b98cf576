package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

func healthyStats() clusterhttp.Stats {
	return fakeagent.Healthy()["GET /v1/stats"].(clusterhttp.Stats)
}

// TestDoctorCommand tests exit codes and output, including an agent that has not joined.
func TestDoctorCommand(t *testing.T) {
	joining := clusterhttp.Problem{
		Status:  http.StatusServiceUnavailable,
		Code:    clusterhttp.CodeNotReady,
		Message: "joining: no node",
		State:   "joining",
	}
	ended := clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "the agent has left"}
	seedless := healthyStats()
	seedless.Settings.Join = nil
	doubt := healthyStats()
	doubt.Rooms.StoreDoubt = true
	flapping := clusterhttp.History{
		Events: slices.Repeat([]clusterhttp.Event{{Kind: cluster.EventLost, Member: "node-b", Reason: "crashed"}}, 3),
	}
	for name, c := range map[string]struct {
		path         string
		answer       any
		code         int
		status, want string
	}{
		"ok":      {"stats", healthyStats(), exitOK, "ok", "14 ok, 0 warn, 0 fail, as node-a sees it"},
		"warn":    {"stats", seedless, exitWarned, "warn", "13 ok, 1 warn, 0 fail, as node-a sees it"},
		"fail":    {"stats", doubt, exitBroken, "fail", "13 ok, 0 warn, 1 fail, as node-a sees it"},
		"joining": {"stats", joining, exitBroken, "fail", "has not joined: joining: no node"},
		"ended":   {"stats", ended, exitBroken, "fail", "has stopped: the agent has left"},
		"flaps":   {"history", flapping, exitWarned, "warn", "comes and goes: node-b, ended 3 times"},
	} {
		f := fakeagent.New(t)
		f.Set("GET /v1/"+c.path, c.answer)
		code, out, problem := roostIn(t, f.Env, "doctor", "--over", "1ms")
		if code != c.code || problem != "" || !strings.Contains(out, c.want) {
			t.Errorf("%s: exits with %d, prints %q\n%s", name, code, problem, out)
		}
		code, out, _ = roostIn(t, f.Env, "doctor", "--over", "1ms", "--output", "json")
		var d struct {
			Status string
			Checks []struct{ Name, Status string }
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != c.code || d.Status != c.status || len(d.Checks) == 0 {
			t.Errorf("%s as json: exits with %d, %v\n%s", name, code, err, out)
		}
	}

	f := fakeagent.New(t)
	code, out, _ := roostIn(t, f.Env, "doctor", "--over", "1ms", "--expect", "4")
	if code != exitBroken || !strings.Contains(out, "fail  expected  3 members, not 4") {
		t.Errorf("with too few members: %d\n%s", code, out)
	}
	f.Env["ROOST_ADDR"] = "http://me:secret@" + f.Env["ROOST_ADDR"]
	if code, out, problem := roostIn(t, f.Env, "doctor", "--over", "1ms"); code != exitOK || strings.Contains(out+problem, "secret") {
		t.Errorf("behind a proxy that requires a password: %d %q %q", code, out, problem)
	}
}

func TestCheckLines(t *testing.T) {
	c := doctor.Check{
		Name:    "clocks",
		Status:  doctor.Warn,
		Finding: "far from the other clocks: b",
		Means:   "a node that is ahead is fenced",
		Do:      "have NTP set the clock",
	}
	want := `warn  clocks    far from the other clocks: b
                means: a node that is ahead
                       is fenced
                do:    have NTP set the
                       clock
`
	if diff := cmp.Diff(want, term.Text(checkLines(c, 44), false, "\n")); diff != "" {
		t.Error(diff)
	}
	good := doctor.Check{Name: "seeds", Finding: "all of them are members: 10.0.0.1:7946, 10.0.0.2:7946"}
	want = `ok    seeds     all of them are members:
                10.0.0.1:7946, 10.0.0.2:7946
`
	if diff := cmp.Diff(want, term.Text(checkLines(good, 44), false, "\n")); diff != "" {
		t.Error(diff)
	}
}

// TestFindingsShared: agents share a finding if it differs only in durations and counts. Findings that name different
// nodes or settings stay separate.
func TestFindingsShared(t *testing.T) {
	for _, c := range []struct {
		one, two string
		same     bool
	}{
		{"lost: n3 expired 3s ago, n4 expired 3s ago", "lost: n1 expired 3s ago, n2 expired 3s ago", false},
		{"lost: 3 expired 3s ago", "lost: 4 expired 3s ago", false},
		{"lost: 3s-a expired 3s ago", "lost: 4s-a expired 3s ago", false},
		{"no live member at 10.0.0.9:7946", "no live member at 10.0.0.8:7946", false},
		{"partitions is 64 here and 1024 on n1", "partitions is 1024 here and 64 on n1", false},
		{"lost: n3 expired 3s ago, n4 crashed 59s ago", "lost: n3 expired 4s ago, n4 crashed 1m0s ago", true},
		{"about to expire at 6s: n3 4.1s, n4 5s", "about to expire at 6s: n3 4s, n4 5.5s", true},
		{"far from the other clocks: n3 9s behind", "far from the other clocks: n3 8.9s behind", true},
		{"expired: 1 more within 2s, 12 since start", "expired: 2 more within 2s, 9 since start", true},
		{"behind for all of 2s: watch by 1 state", "behind for all of 2s: watch by 3 states", true},
		{"about 2.1 billion messages: 70 by this node since", "about 2 billion messages: 71 by this node since", true},
	} {
		agents := []finding{{survey.Agent{ID: "n1"}, nil}, {survey.Agent{ID: "n2"}, nil}}
		for i, text := range []string{c.one, c.two} {
			agents[i].Checks = []doctor.Check{{Name: "members", Status: doctor.Warn, Finding: text}}
		}
		text := term.Text(otherLines(agents, nil, 200), false, "\n")
		at := strings.Count(text, ": "+c.one) + strings.Count(text, ": "+c.two)
		if shared := strings.Contains(text, "at n1, n2: "+c.one); shared != c.same || !shared && at != 2 {
			t.Errorf("%q and %q: shared is %v, want %v\n%s", c.one, c.two, shared, c.same, text)
		}
	}
}

// With --all, the report says what to do about a finding of another agent, but not twice.
func TestWhatToDoElsewhere(t *testing.T) {
	full := doctor.Check{Name: "load", Status: doctor.Warn, Finding: "overloaded: n2", Do: "start a node"}
	agents := []finding{{survey.Agent{ID: "n2"}, []doctor.Check{full}}}
	for _, c := range []struct {
		first []doctor.Check
		says  bool
	}{
		{nil, true},
		{[]doctor.Check{{Name: "load", Status: doctor.Warn, Do: "ask n2"}}, true},
		{[]doctor.Check{full}, false},
	} {
		if text := term.Text(otherLines(agents, c.first, 80), false, "\n"); strings.Contains(text, "start a node") != c.says {
			t.Errorf("after %+v: %s", c.first, text)
		}
	}
}

// TestReportFits: a report with --all fits into 80 columns, and no words are lost.
func TestReportFits(t *testing.T) {
	var r report
	if err := json.Unmarshal([]byte(allOfTown(t, "doctor")), &r); err != nil {
		t.Fatal(err)
	}
	checks := r.Checks
	for _, a := range r.Agents {
		checks = append(checks, a.Checks...)
	}
	page := otherLines(r.Agents, r.Checks, 80)
	for _, c := range checks {
		lines := checkLines(c, 80)
		got := strings.Fields(term.Text(lines, false, "\n"))
		got = slices.DeleteFunc(got, func(w string) bool { return w == "means:" || w == "do:" })
		if want := strings.Fields(c.Status.String() + " " + c.Name + " " + c.Finding + " " + c.Means + " " + c.Do); !slices.Equal(got, want) {
			t.Errorf("%q is shown as %q", want, got)
		}
		page = append(page, lines...)
	}
	for _, l := range page {
		if term.Columns(l.String()) > 80 {
			t.Errorf("too wide: %s", l)
		}
	}
	if len(page) < 25 {
		t.Errorf("a report of %d lines proves little", len(page))
	}
}

// TestDoctorNamesWhatDoesNotArrive: a node advertises an address at which either nothing or another node answers. The
// node does not join, although its seed answers over TCP. Its agent and the doctor name the address.
func TestDoctorNamesWhatDoesNotArrive(t *testing.T) {
	t.Parallel()
	a := agent(t, "a")
	b := agent(t, "b", "--join", a.Gossip)
	agree(t, a, b)
	for name, at := range map[string]string{"nothing": fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t)), "another": b.Gossip} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atB := agenttest.Observe(t, b.Client, b.Log) // this observer belongs to the subtest, because a parent test cannot fail while its subtest runs
			base := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
			w := launch(t, "w-"+name, "--join", a.Gossip, "--advertise", at, "--http", base)
			eventually(t, func() error {
				code, out, problem := roost(t, "doctor", "--addr", base, "--over", "1ms")
				if want := "at its advertised address " + at; code != exitBroken || !strings.Contains(out, want) {
					return fmt.Errorf("no %q in %s%s", want, out, problem)
				}
				return nil
			})
			w.Logs("at its advertised address " + at)
			atB.Await(time.Now(), timeout, agenttest.Views{Members: []string{"a active", "b active"}})
		})
	}
}

// TestDoctorAllLosesAnAgent: an agent answers the doctor's first look and fails before the second, so the doctor has no
// view from it. The doctor reports no findings about this agent's data.
func TestDoctorAllLosesAnAgent(t *testing.T) {
	t.Parallel()
	eventually(t, func() error { // on a busy machine, the agent may not answer in time at all
		f := town(t, 1)
		f[1].Set("GET /v1/stats", func(n int) any {
			if n >= 3 { // the first two requests are the survey and the first look
				return clusterhttp.Problem{Status: http.StatusInternalServerError, Code: "broken", Message: "no more answers"}
			}
			return healthyStats()
		})
		code, out, problem := roostIn(t, f[0].Env, "doctor", "--all", "--over", "1ms")
		if code != exitWarned || !strings.Contains(out, "no view from other-001 (no more answers)") || strings.Contains(out, "at other-001: ") {
			return fmt.Errorf("exits with %d\n%s%s", code, out, problem)
		}
		return nil
	})
}

// town starts a healthy agent, and other agents that it lists as members.
func town(t *testing.T, others int) (agents []*fakeagent.Agent) {
	t.Helper()
	members := fakeagent.Healthy()["GET /v1/members"].(clusterhttp.Members)
	for i := range members.Members {
		members.Members[i].HTTP = ""
	}
	for i := range 1 + others {
		f := fakeagent.New(t)
		agents = append(agents, f)
		if i > 0 {
			id := lease.NodeID(fmt.Sprintf("other-%03d", i))
			members.Members = append(members.Members, clusterhttp.Member{
				Profile: lease.Profile{ID: id, Addr: "10.0.0.9:7946", Weight: 100},
				State:   lease.Active,
				AgeMS:   500,
				InSync:  true,
				HTTP:    "http://" + f.Env["ROOST_ADDR"],
			})
		}
	}
	first := len(members.Members) - len(agents) // the members of a healthy cluster come first
	for i, f := range agents {
		own := members
		if i > 0 {
			own.Self = members.Members[first+i].ID
		}
		f.Set("GET /v1/members", own)
	}
	return agents
}

// TestDoctorAllOfMany: there are more agents than doctor asks at the same time. It asks the rest later, and gives each
// agent enough time.
func TestDoctorAllOfMany(t *testing.T) {
	t.Parallel()
	f := town(t, 65)
	eventually(t, func() error { // on a starved machine, an agent may not answer within 5 s
		_, out, problem := roostIn(t, f[0].Env, "doctor", "--all", "--over", "6s")
		if !strings.Contains(out, "65 of 67 other agents answered") {
			return fmt.Errorf("%s%s", out, problem)
		}
		return nil
	})
}

// TestDoctorAllWithin: doctor names the agents that it had no time to ask, and reports no findings about them.
func TestDoctorAllWithin(t *testing.T) {
	t.Parallel()
	f := town(t, 70)
	code, out, problem := roostIn(t, f[0].Env, "doctor", "--all", "--over", "6s", "--within", "5s")
	var rest, first int // 6 agents, starting with other-065; on a busy machine more, because not even 64 agents were asked
	_, _ = fmt.Sscanf(out[max(0, strings.LastIndex(out, "warn  views")):],
		"warn views %d of 73 agents were not asked: other-%d", &rest, &first)
	if code != exitWarned || rest == 0 || rest+first != 71 || problem != "" {
		t.Errorf("exits with %d\n%s%s", code, out, problem)
	}
	code, out, problem = roostIn(t, f[0].Env, "doctor", "--all", "--over", "1ms", "--within", "1ns")
	if want := " within 1ns: allow more time with --within"; code != exitFailed || !strings.Contains(problem, want) {
		t.Errorf("exits with %d and not with %q\n%s%s", code, want, out, problem)
	}
	code, out, problem = roostIn(t, f[0].Env, "doctor", "--within", "1s")
	if want := "--within limits --all"; code != exitUsage || !strings.Contains(problem, want) {
		t.Errorf("without --all: exits with %d and not with %q\n%s%s", code, want, out, problem)
	}
}
