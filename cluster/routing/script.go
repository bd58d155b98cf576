package routing

import _ "embed"

//go:embed follow.mjs
var script []byte

// JavaScript returns follow.mjs, the Follower for Node.js and browsers. An agent serves it, too, as /follow.mjs.
func JavaScript() []byte { return script }
