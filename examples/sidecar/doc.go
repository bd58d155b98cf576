// Package sidecar has nothing but a test, of server.mjs: a media server in another
// language than Go, beside the agent of its node. See docs/sidecar.md.
package sidecar
