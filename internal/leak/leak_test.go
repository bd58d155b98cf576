package leak

import (
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	if err := wait(0); err == nil {
		t.Error("a goroutine that never ends is not found")
	}
	time.AfterFunc(50*time.Millisecond, func() { close(stop) })
	if err := wait(10 * time.Second); err != nil {
		t.Errorf("a goroutine that ends in time is held against the test: %v", err)
	}
}
