package reconnect

import _ "embed"

//go:embed reconnect.mjs
var script []byte

// JavaScript returns the source of reconnect.mjs, for servers that send it to browsers.
func JavaScript() []byte { return script }
