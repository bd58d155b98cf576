package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestSim: the same flags print the same result again, and each flag has an effect.
func TestSim(t *testing.T) {
	simulate := func(flags string) string {
		out := succeeds(t, strings.Fields("sim --nodes 10 --for 20s --output json "+flags)...)
		var fields map[string]any
		if err := json.Unmarshal([]byte(out), &fields); err != nil || fields["nodes"] != 10.0 || fields["virtual_s"] != 20.0 {
			t.Errorf("%s: %v, %s", flags, err, out)
		}
		return out
	}
	plain := simulate("")
	if again := simulate("--seed 1 --delay 1ms-3ms --ttl 6s --loss 0% --crash 1 --gossip-nodes 3"); again != plain {
		t.Errorf("by default:\n%sby the flags that stand for it:\n%s", plain, again)
	}
	want := regexp.MustCompile(`^\{"nodes":10,"loss_percent":0,"virtual_s":20,"false_expiries":0,"oldest_age_ms":\d+,` +
		`"kb_per_s":[\d.]+,"packets_per_s":[\d.]+,"agree_ms":\{"start":\d+,"join":\d+,"leave":\d+,"crash":\d+\},"seed":1\}\n$`)
	if !want.MatchString(plain) {
		t.Errorf("it prints %s", plain)
	}
	seen := map[string]string{plain: "none"}
	for _, flags := range []string{
		"--seed 2", "--loss 20", "--delay 20ms", "--delay 1ms-40ms", "--heartbeat 1s", "--ttl 8s",
		"--gossip-nodes 2", "--crash 0", "--vanish", "--network wan",
	} {
		out := strings.Replace(simulate(flags), `"seed":2`, `"seed":1`, 1) // the rest of the output must differ, too
		if other, ok := seen[out]; ok {
			t.Errorf("%s and %s print the same: %s", flags, other, out)
		}
		seen[out] = flags
	}
}

// TestSimTable: the table shows everything that the JSON contains, and says what did not happen.
func TestSimTable(t *testing.T) {
	t.Setenv("TERM", "xterm") // standard error is still not a terminal
	for flags, want := range map[string]string{
		"--nodes 5 --for 1s": `^5 nodes, 0 % loss, delay 1ms-3ms, heartbeat 2s, ttl 6s, news to 3 nodes each 200ms

MEASURED +RESULT
false expiries +0
oldest lease, at rest +\d[\d.]*m?s
each node sends, at rest +[\d.]+ kB/s in [\d.]+ packets/s
all agree after 5 start at once +[\d.]+m?s
\.\.\. after one joins +[\d.]+m?s
\.\.\. after one leaves +[\d.]+m?s
\.\.\. after 1 crash +[\d.]+m?s

1s at rest, seed 1
$`,
		"--nodes 5 --for 1s --crash 0 --network wan": `^5 nodes, 0 % loss, delay 50ms-150ms, heartbeat 5s, ttl 20s, news to 4 nodes each 500ms
(?s:.*)after one leaves +[\d.]+m?s

1s at rest`,
		"--nodes 4 --for 1s --delay 50s --ttl 40s": `false expiries +\d+
(?s:.*)after 4 start at once +not within 80 s
\.\.\. after one joins +not within 80 s
`,
	} {
		out := succeeds(t, strings.Fields("sim "+flags)...)
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: it prints\n%s", flags, out)
		}
	}
	out := succeeds(t, strings.Fields("sim --nodes 4 --for 1s --delay 50s --output json")...)
	if !strings.Contains(out, `"start":null`) {
		t.Errorf("it prints %s", out)
	}
}
