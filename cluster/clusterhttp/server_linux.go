package clusterhttp

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitAcks makes the kernel close the connection when the client has acknowledged nothing for ackTime.
func limitAcks(tcp *net.TCPConn) {
	if c, err := tcp.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTime.Milliseconds()))
		})
	}
}
