package events

import (
	"testing"
	"testing/synctest"
)

// No watcher receives here, so a Publish that waited would hang.
func TestPublishWaitsForNobody(t *testing.T) { // S3.15
	synctest.Test(t, func(t *testing.T) {
		var feed Feed
		for range 50 {
			Subscribe(t.Context(), &feed) // never read
		}
		held := make(chan struct{})
		for range 50 {
			go func() {
				for range Watch(t.Context(), &feed) {
					<-held // a handler that hangs
				}
			}()
		}
		var s *State
		for range 1000 {
			s = step{owners: "ab"}.next(t, s)
			feed.Publish(s)
		}
		synctest.Wait()
		feed.Close()
		close(held)
	})
}
