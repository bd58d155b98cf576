//go:build !linux

package clusterhttp

import "net"

// limitAcks does nothing, because TCP_USER_TIMEOUT exists only on Linux. Other systems apply their own
// limits.
func limitAcks(*net.TCPConn) {}
