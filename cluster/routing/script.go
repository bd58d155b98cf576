package routing

import _ "embed"

//go:embed routing.mjs
var script []byte

// JavaScript returns routing.mjs, the Client for Node.js and browsers. Agents also serve this file as
// /routing.mjs.
func JavaScript() []byte { return script }
