package redisstore

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

// Redis restarts with an old copy of its data, which lacks the latest hostings of two rooms. One room is still hosted,
// the other has ended. Both rooms get greater epochs than before.
func TestEpochsAfterOlderCopy(t *testing.T) {
	server := redistest.Start(t)
	agent, err := cluster.Start(t.Context(), cluster.Config{
		ID: "a", Bind: "127.0.0.1:0", Network: cluster.Local, Log: slog.New(slog.DiscardHandler), LeaseTTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close() })
	<-agent.Ready()
	rooms, err := affinity.Start(agent, ready(t, redisAt{URL: server.URL()}), affinity.Config{
		Budget: answerTime,
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rooms.Close() })
	host := func(room string) (h *affinity.Hosting) {
		t.Helper()
		redistest.Eventually(t, "hosting", func() (err error) {
			h, err = rooms.Host(t.Context(), room, affinity.Demand{Size: 2})
			if err == nil && h.Epoch() == 0 {
				err = fmt.Errorf("%s is not confirmed", room)
			}
			return err
		})
		return h
	}
	release := func(h *affinity.Hosting) {
		t.Helper()
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	hosted, ended := host("hosted"), host("ended")
	server.Do("SAVE")
	release(hosted)
	release(ended)
	hosted, ended = host("hosted"), host("ended")
	release(ended)
	least := hosted.Epoch()
	server.Restart()
	redistest.Eventually(t, "greater epoch", func() error {
		switch epoch := hosted.Epoch(); {
		case hosted.Err() != nil || epoch < least:
			t.Fatalf("the host had epoch %d and has %d, %v", least, epoch, hosted.Err())
		case epoch == least:
			return fmt.Errorf("the host has epoch %d still", epoch)
		}
		return nil
	})
	if h := host("ended"); h.Epoch() <= ended.Epoch() {
		t.Errorf("epoch %d after %d", h.Epoch(), ended.Epoch())
	}
}
