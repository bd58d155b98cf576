package survey

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/lease"
)

// TestProgress: a terminal that stops accepting progress output does not delay answers. The progress counts only agents
// that are asked, not agents without an API.
func TestProgress(t *testing.T) {
	sees := map[string][]string{"a": {"a", "off"}}
	for i := range 2 * atOnce {
		id := fmt.Sprintf("n%04d", i)
		sees["a"], sees[id] = append(sees["a"], id), []string{id}
	}
	tn := newTown(t, sees)
	all := make(chan struct{})
	var asked atomic.Int64
	tn.calls = func(call string) {
		if call == "v1/stats" && asked.Add(1) == int64(len(sees)) {
			close(all)
		}
	}
	last, most := 0, 0
	tn.take(t, "a", func(done, of int) {
		if done < last || of < done {
			t.Errorf("%d of %d were asked, after %d", done, of, last)
		}
		last, most = done, max(most, of)
		if t.Failed() {
			return
		}
		select {
		case <-all:
		case <-time.After(10 * time.Second):
			t.Error("agents wait for the terminal")
		}
	})
	if most != 2*atOnce {
		t.Errorf("asks %d agents, want %d", most, 2*atOnce)
	}
}

var many = flag.Int("agents", 150, "how many agents TestMany asks")

// TestMany: many agents are asked, a limited number at the same time. Agents that hang do not delay the others. When the
// time is over, the result also has a row for each agent that was not asked. To test with a thousand agents:
//
//	go test -run TestMany -v ./cmd/roost/internal/survey -agents 1000
func TestMany(t *testing.T) {
	t.Parallel()
	sees := make(map[string][]string)
	tn := newTown(t, sees)
	var all clusterhttp.Members
	for i := range *many {
		id := fmt.Sprintf("n%04d", i)
		sees[id], tn.hangs[id] = []string{}, i%10 == 9
		all.Members = append(all.Members, clusterhttp.Member{
			Profile: lease.Profile{ID: lease.NodeID(id), Addr: "10.11.12.13:7946", APIAddr: "10.11.12.13:3478", Zone: "zone-1"},
			State:   lease.Active,
			HTTP:    tn.at(id),
		})
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	_, tn.same, _ = bytes.Cut(b, []byte(`,`)) // behind self
	began := time.Now()
	agents := tn.take(t, "n0000", nil)
	t.Logf("%d agents, a tenth of which hang for 5s, took %v", *many, time.Since(began).Round(100*time.Millisecond))
	answered := 0
	for _, a := range agents {
		if a.View != nil && len(a.View.Sees) == *many {
			answered++
		}
	}
	// The limit is doubled, because the next agent may be asked before the test has counted the previous answer.
	if answered != *many-*many/10 || len(agents) != *many || tn.most.Load() > 2*atOnce {
		t.Errorf("%d of %d answered, %d at once", answered, len(agents), tn.most.Load())
	}
	hung := newTown(t, sees)
	hung.same, hung.last = tn.same, atOnce
	for id := range sees {
		hung.hangs[id] = id != "n0000"
	}
	late := hung.take(t, "n0000", nil)
	reasons := strings.Count(fmt.Sprint(late), "not asked: time ran out")
	if len(late) != *many || reasons == 0 || reasons > *many-atOnce-1 {
		t.Errorf("%d rows, %d not asked", len(late), reasons)
	}
	want := fmt.Sprintf("%d of %d agents were not asked: ", reasons, *many)
	if found := Check(late); !slices.ContainsFunc(found, func(c doctor.Check) bool { return strings.HasPrefix(c.Finding, want) }) {
		t.Errorf("finds %+v, and not %q", found, want)
	}
}

// TestChain: if each agent names one more agent, the survey stops after some rounds.
func TestChain(t *testing.T) {
	sees := make(map[string][]string)
	for i := range 30 {
		sees[fmt.Sprintf("n%02d", i)] = []string{fmt.Sprintf("n%02d", i), fmt.Sprintf("n%02d", i+1)}
	}
	agents := newTown(t, sees).take(t, "n00", nil)
	if last := agents[len(agents)-1]; len(agents) != rounds+2 || !strings.HasPrefix(last.Problem, "not asked") {
		t.Errorf("%d agents, the last one %+v", len(agents), last)
	}
}
