// Package sidecar contains only a test of server.mjs: a media server in another
// language than Go, next to the agent of its node. See docs/sidecar.md.
package sidecar
