//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

var deaf = flag.Int("deaf", 1000, "clients in TestDeafClients, at most 4,000")

// TestDeafClients: clients request the largest answers and read nothing. The agent shares the bytes of an answer among
// them, so it needs little memory. Other clients still get answers.
func TestDeafClients(t *testing.T) {
	t.Parallel()
	id := "a" + strings.Repeat("-node-with-a-long-id", 3) // an answer is half a MB
	a := agent(t, id, append(calm(), "--partitions", "8192")...)
	agree(t, a)
	most := memory(t, a)
	for _, path := range []string{"/v1/partitions", "/v1/members", "/v1/owned"} {
		var asked sync.WaitGroup
		for i := range 50 { // with more at the same time, some connections would be cut off before they send a request
			asked.Go(func() {
				for range (*deaf + i) / 50 {
					ignore(t, a.Base, path)
				}
			})
		}
		asked.Wait()
		eventually(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := a.Partitions(ctx)
			return err
		})
		t.Logf("%d × %s: %d MB at most, %d MB before", *deaf, path, memory(t, a)>>20, most>>20)
	}
	if now := memory(t, a); now > most+100<<20 {
		t.Errorf("%d MB at most, and %d MB before", now>>20, most>>20)
	}
}

// ignore sends a request, and reads nothing until the end of the test.
func ignore(t *testing.T, addr, path string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		t.Error(err)
		return
	}
	_, _ = io.ReadFull(conn, make([]byte, 1)) // the answer has begun
}
