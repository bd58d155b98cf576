//go:build !linux

package clusterhttp

import "net"

// limitAcks does nothing, because these systems have their own limits.
func limitAcks(*net.TCPConn) {}
