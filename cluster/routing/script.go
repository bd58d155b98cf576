package routing

import _ "embed"

//go:embed routing.mjs
var script []byte

// JavaScript returns routing.mjs, the Client for Node.js and browsers. An agent serves it, too, as /routing.mjs.
func JavaScript() []byte { return script }
