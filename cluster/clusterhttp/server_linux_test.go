package clusterhttp

import (
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"
)

// If a client acknowledges nothing, the kernel closes its connection. This works in any server that uses ConnContext.
func TestAcknowledgements(t *testing.T) {
	for name, srv := range map[string]*http.Server{"NewServer": NewServer(nil), "another": {ConnContext: ConnContext}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		theirs, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		ours, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		srv.ConnContext(t.Context(), ours)
		raw, err := ours.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != int(ackTime.Milliseconds()) {
				t.Errorf("%s: %d ms, %v", name, ms, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
