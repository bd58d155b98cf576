package clusterhttp

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const writeTimeout = 75 * time.Second

// NewServer returns a server for h, which may be a [Handler] alone or a mux that
// holds one, with limits on the cost of an idle, slow or hostile client. Call Serve with
// a listener, or set Addr first.
//
// At most 4,096 connections are open at a time, and at most 256 of them without a request
// in progress. At the limit the server closes the connection that has waited longest for
// its client. So idle connections cannot block other clients, nor use up the file
// descriptors or the memory of the application. For more event streams than that
// ([Options].MaxStreams), set ConnState to nil, which removes both limits.
//
// A connection whose client acknowledges nothing for 30 s is closed, on Linux and over HTTP/2. So the event streams of a
// host that has vanished end within a minute.
//
// WriteTimeout is longer than any response may take, but for two kinds. An event stream replaces it by a
// deadline for each event, and a call that waits for agreement by its own. For that, a middleware around the handler must support
// http.ResponseController (by Unwrap); otherwise the stream ends after WriteTimeout and
// its client reconnects. Shutdown ends the streams at once and waits for other requests.
func NewServer(h http.Handler) *http.Server {
	if h == nil {
		h = http.DefaultServeMux // as for http.Server
	}
	stop := make(chan struct{})
	limits := newConns(maxConns, maxWaiting)
	srv := &http.Server{
		Handler:           limits.around(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // headers and body
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10, // a key of 4 kB takes 12 kB when escaped
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: ackTime, SendPingTimeout: ackTime / 2, PingTimeout: ackTime / 2},
		ConnState:         limits.changed,
		ConnContext:       limits.context,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stopKey{}, (<-chan struct{})(stop))
		},
	}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stop) }))
	return srv
}
