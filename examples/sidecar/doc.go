// Package sidecar contains only a test of server.mjs, a media server that is written in JavaScript and runs
// next to its node's agent. See docs/sidecar.md.
package sidecar
