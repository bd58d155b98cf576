package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A fenced node owns nothing. Its lookups use the last table and the last members, and are marked as stale.
func TestLookupsDuringFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 5, clustertest.Options{})
		a := c.Agent("n01")
		keys := make([]string, 200)
		before := make(map[string]*cluster.Member)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", i)
			before[keys[i]], _ = a.Place(keys[i])
		}
		fenced, moments := a.Snapshot().Stats.Fences, 0
		c.Pause("n01")
		time.Sleep(20 * time.Second)
		c.Resume("n01")
		for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			s := a.Snapshot()
			if s.Stats.Fences == fenced { // its loop has not resumed yet
				continue
			}
			if s.Phase == cluster.PhaseActive && !s.Stale() {
				break
			}
			moments++
			if len(s.Members) != 5 {
				t.Fatalf("%v: it knows %d members, want the last known 5", s.Phase, len(s.Members))
			}
			if !s.Fenced || !s.Stale() || s.Converged() {
				t.Fatalf("%v: fenced %t, stale %t, converged %t", s.Phase, s.Fenced, s.Stale(), s.Converged())
			}
			for _, key := range keys {
				owner, err := s.Place(key)
				if err != nil || owner.ID != before[key].ID || owner.Addr != before[key].Addr {
					t.Fatalf("%v: %s is placed at %+v, %v; want the last owner %s", s.Phase, key, owner, err, before[key].ID)
				}
				if owns := a.IsOwner(key); owns && a.Snapshot() == s || len(s.Owners(key, 3)) != 3 {
					t.Fatalf("%v: it owns %s: %t, and names %d owners", s.Phase, key, owns, len(s.Owners(key, 3)))
				}
			}
			if moments > 1 {
				continue
			}
			if f := a.History().Samples; f[len(f)-1].Members != 1 || f[len(f)-1].At.Before(time.Now().Add(-time.Second)) {
				t.Errorf("the latest numbers of its history are %+v, want 1 live member, itself", f[len(f)-1])
			}
			if err := a.Cordon(t.Context(), "n02", time.Minute, ""); !errors.Is(err, cluster.ErrFenced) {
				t.Fatalf("it cordons: %v", err)
			}
		}
		if moments < 50 {
			t.Errorf("seen %d times during the fence", moments)
		}
		c.WaitAgreed(20 * time.Second)
		if s := a.Snapshot(); s.Fenced || s.Stale() {
			t.Errorf("after the fence: fenced %t, stale %t", s.Fenced, s.Stale())
		}
	})
}

// The other nodes change the key while a node is paused. The fenced node gets the new key with the same calls, although
// the members that it remembers reported only the old key. It refuses to remove the old key, because it does not know
// which members still send with it.
func TestNewKeyDuringFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former, next := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key = former }})
		a := c.Agent("n01")
		c.Pause("n01")
		time.Sleep(20 * time.Second)
		for _, step := range []func(*cluster.Agent) error{
			func(b *cluster.Agent) error { return b.InstallKey(next) },
			func(b *cluster.Agent) error { return b.UseKey(cluster.KeyFingerprint(next)) },
			func(b *cluster.Agent) error { return b.RemoveKey(cluster.KeyFingerprint(former)) },
		} {
			for _, id := range []string{"n00", "n02"} {
				if err := step(c.Agent(id)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second)
		}
		c.Resume("n01")
		for a.Snapshot().Stats.Fences == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if s := a.Snapshot(); !s.Fenced || len(s.Members) != 3 {
			t.Fatalf("with the former key: fenced %t, %d members", s.Fenced, len(s.Members))
		}
		if err := a.InstallKey(next); err != nil {
			t.Error(err)
		}
		if err := a.UseKey(cluster.KeyFingerprint(next)); err != nil {
			t.Errorf("it does not use the new key: %v", err)
		}
		if err := a.RemoveKey(cluster.KeyFingerprint(former)); !errors.Is(err, cluster.ErrFenced) {
			t.Errorf("it removes the former key during the fence: %v", err)
		}
		c.WaitAgreed(time.Minute)
		if err := a.RemoveKey(cluster.KeyFingerprint(former)); err != nil {
			t.Errorf("after the fence: %v", err)
		}
	})
}

// A fenced node that cannot join yet keeps its last members. If it learns that a member has left, it removes that
// member.
func TestFenceForgetsWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{})
		a := c.Agent("n01")
		c.Pause("n01")
		time.Sleep(20 * time.Second)
		c.Leave("n02")
		c.Resume("n01")
		for a.Snapshot().Stats.Fences == 0 {
			time.Sleep(time.Millisecond)
		}
		gone := false
		for a.Snapshot().Fenced {
			_, member := a.Member("n02")
			if gone && member {
				t.Error("a member that has left is back")
			}
			gone = !member
			time.Sleep(time.Millisecond)
		}
		if _, member := a.Member("n02"); member {
			t.Error("n02 has left, and is a member after the fence")
		}
		c.WaitAgreed(20 * time.Second)
	})
}
