#!/usr/bin/env bash
# screenshots.sh: makes the pictures in docs/images from a real demo: the dashboard with a lost node, and the map with a
# room, each in both themes. It needs what the tests need; see deps.sh.
set -euo pipefail

cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait "$demo" || true; rm -rf "$dir"' EXIT

go build -o "$dir/roost" ./cmd/roost
"$dir/roost" demo --nodes 5 --http 127.0.0.1:18400 >"$dir/demo.log" 2>&1 &
demo=$!
chromium --headless --hide-scrollbars --no-sandbox --user-data-dir="$dir/chromium" --remote-debugging-port=0 \
	>"$dir/chromium.log" 2>&1 &
for file in chromium/DevToolsActivePort demo.log; do
	until [[ -s $dir/$file ]]; do sleep 0.1; done
done
until curl -fs 127.0.0.1:18400/v1/members >/dev/null; do sleep 0.1; done

# The page is open during the whole tour, so that it shows events.
PORT=$(head -1 "$dir/chromium/DevToolsActivePort") LOG=$dir/demo.log node --experimental-websocket --no-warnings - <<'END'
const { readFileSync, writeFileSync } = require('node:fs');
const { PORT, LOG } = process.env;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
async function main() {
  const page = await (await fetch(`http://127.0.0.1:${PORT}/json/new?about:blank`, { method: 'PUT' })).json();
  const socket = new WebSocket(page.webSocketDebuggerUrl);
  await new Promise((done) => socket.addEventListener('open', done));
  let id = 0;
  const call = (method, params) => new Promise((done) => {
    const mine = ++id;
    socket.addEventListener('message', ({ data }) => {
      const answer = JSON.parse(data);
      if (answer.id === mine) done(answer.result);
    });
    socket.send(JSON.stringify({ id: mine, method, params }));
  });
  await call('Emulation.setDeviceMetricsOverride', { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false });
  await call('Page.navigate', { url: 'http://127.0.0.1:18400/' });
  while (!readFileSync(LOG, 'utf8').includes('until Ctrl-C')) await sleep(200);
  await sleep(15000); // what the page found while the tour was under way has faded
  const evaluate = (expression) => call('Runtime.evaluate', { expression });
  const save = async (name) => {
    const quiet = `document.body.dataset.link === "live" && document.getElementById("health-sum").textContent === "1 warning"`; // of the lost node
    while (!(await evaluate(quiet)).result.value) await sleep(200);
    for (const value of ['light', 'dark']) {
      await call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value }] });
      await sleep(1500);
      const { data } = await call('Page.captureScreenshot', { format: 'png' });
      writeFileSync(`docs/images/${name}-${value}.png`, Buffer.from(data, 'base64'));
    }
  };
  await save('dashboard');
  await evaluate(`{
    document.getElementById("tab-map").click();
    const kind = document.getElementById("lookup-kind");
    kind.value = "room";
    kind.dispatchEvent(new Event("change"));
    document.getElementById("lookup-name").value = "all-hands";
    document.getElementById("lookup").requestSubmit();
    document.querySelector("#health-found details").open = false;
    scrollTo(0, document.getElementById("views").offsetTop - 64); // below the header
  }`);
  await save('rooms');
  await call('Browser.close', {});
  process.exit();
}
main();
END
