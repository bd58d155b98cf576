package clusterhttp

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxConns is four times what the event streams take by default. A connection whose
// client is slow on purpose costs up to half a megabyte while its headers are awaited,
// if it sends many short ones: all of them together would take 2 GB.
const maxConns = 4 << 10

// NewServer returns a server for h, which may be a [Handler] alone or a mux that
// holds one, with limits that bound what an idle, slow or hostile client costs.
// Listen with Serve, or set Addr first.
//
// At most 4,096 connections are open at a time; more are closed at once, so that no
// crowd of them takes the file descriptors that the agent gossips with, or those of
// the program that it is part of. Set ConnState to nil to have no such limit, as
// for more event streams than that ([Options].MaxStreams).
//
// WriteTimeout is longer than any answer may take. An event stream replaces it by
// a deadline for each event; a middleware around the handler must let
// http.ResponseController through for that (by Unwrap), else the stream ends with
// WriteTimeout and its client comes back. Shutdown ends the streams at once and
// waits for the rest.
func NewServer(h http.Handler) *http.Server {
	stop := make(chan struct{})
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // headers and body
		WriteTimeout:      maxWait + 15*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10, // a key of 4 kB takes 12 kB when escaped
		ConnState:         limitConns(maxConns),
		ConnContext:       boundBuffer,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stopKey{}, (<-chan struct{})(stop))
		},
	}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stop) }))
	return srv
}

// limitConns closes connections beyond limit. It has none of them wait for its turn
// as netutil.LimitListener does, behind connections that may idle for minutes: who is
// turned away can ask another node.
func limitConns(limit int64) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		if state == http.StateNew && open.Add(1) > limit {
			_ = c.Close()
		}
		if state == http.StateClosed || state == http.StateHijacked {
			open.Add(-1)
		}
	}
}

// writeBuffer is how many bytes the kernel takes of an answer that its client does
// not read. Left to itself it takes some megabytes, for each event stream.
const writeBuffer = 64 << 10

func boundBuffer(ctx context.Context, conn net.Conn) context.Context {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // works on any open connection
	}
	return ctx
}
