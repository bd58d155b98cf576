package clusterhttp

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A client that asks and asks and never reads an answer costs one answer, and that
// not for long.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a")
		c.WaitAgreed(5 * time.Second)
		conn, err := serve(t, NewServer(Handler(c.Agent("a"), Options{Log: quiet}))).dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begin := time.Now()
		for err == nil {
			_, err = io.WriteString(conn, "GET /v1/partitions"+tail+"\r\n")
		}
		if took := time.Since(begin); !errors.Is(err, io.ErrClosedPipe) || took > maxWait+20*time.Second {
			t.Errorf("the connection is held for %v: %v", took, err)
		}
	})
}

// Connections beyond the limit are closed at once, and the others are served; when
// one of those ends, another is let in.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.ConnState = limitConns(2)
		p := serve(t, srv)
		answers := func(conn net.Conn) bool {
			go func() { _, _ = io.WriteString(conn, "GET /"+tail+"\r\n") }()
			_, err := conn.Read(make([]byte, 4<<10))
			return err == nil
		}
		open := func() net.Conn {
			conn, err := p.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		one, two := open(), open()
		for range 10 {
			if answers(open()) {
				t.Error("a third connection is served")
			}
		}
		if !answers(one) || !answers(two) {
			t.Error("those within the limit are not served")
		}
		_ = one.Close()
		synctest.Wait()
		if !answers(open()) || answers(open()) {
			t.Error("not just one more is let in when one has ended")
		}
	})
}

// The limit is there, and well above what the event streams take.
func TestNewServerLimitsConnections(t *testing.T) {
	limit := NewServer(nil).ConnState
	opened := 0
	for {
		ours, theirs := net.Pipe()
		limit(theirs, http.StateNew)
		_ = ours.SetReadDeadline(time.Unix(0, 0))
		if _, err := ours.Read(nil); errors.Is(err, io.EOF) {
			break
		}
		if opened++; opened > 100_000 {
			t.Fatal("there is no limit")
		}
	}
	if opened != maxConns || opened < 2*1024 {
		t.Errorf("%d connections are let in", opened)
	}
}
