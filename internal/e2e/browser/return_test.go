//go:build linux

package browser

import "testing"

// recorded makes a page record its connections, and whether it sends "done" over a WebSocket.
const recorded = `window.connections = [];
	window.done = false;
	window.RTCPeerConnection = class extends RTCPeerConnection {
		constructor(...config) {
			super(...config);
			connections.push(this);
		}
	};
	const plain = WebSocket.prototype.send;
	WebSocket.prototype.send = function (data) {
		done ||= data.includes('"done"');
		plain.call(this, data);
	}; 1`

// TestReturn: a picture that was removed is shown again when its slot has a publisher. A participant whose ICE
// connection recovers after an interruption appears in the call only once.
func TestReturn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	s := startServers(t, "a")
	watcher, source := s.page("a", "watch&room=page"), s.page("a", "fake")
	eval[any](source, recorded)
	source.do(press("#join .first"))
	plays(watcher)
	eval[any](source, `const pc = connections[0];
		for (const state of ["disconnected", "connected"]) {
			Object.defineProperty(pc, "iceConnectionState", { value: state, configurable: true });
			pc.oniceconnectionstatechange();
		} 1`)
	source.until("the end of the connection that was silent", `connections.length === 2 && connections[0].connectionState === "closed"`)
	if eval[bool](source, "done") {
		t.Error("the page left the end of a silent connection to the node, which keeps it for as long as it serves the room")
	}
	source.do(press("#leave"))
	eval[any](watcher, `const now = performance.now.bind(performance);
		window.later = 20_000;
		performance.now = () => now() + later; 1`)
	watcher.until("no picture", `document.querySelectorAll("#pictures li").length === 0`)
	eval[any](watcher, "window.later = 0")
	source.do(press("#join .first"))
	plays(watcher)
}
