// A toy media server next to a roost agent, explained in docs/sidecar.md.
//
//docstest:sh roost agent --id a --api-addr 127.0.0.1:9001
//   AGENT=http://127.0.0.1:8401 LISTEN=127.0.0.1:9001 node server.mjs
//docstest:sh until curl -s '127.0.0.1:9001/rooms' | grep '"node":"a"'; do sleep 0.1; done
//
// LISTEN is the agent's --api-addr. ROOST_TOKEN is the agent's bearer token, if it
// needs one. It needs Node.js 18 or newer and no packages.
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const agent = process.env.AGENT ?? 'http://127.0.0.1:8401';
const listen = new URL('http://' + (process.env.LISTEN ?? '127.0.0.1:9001'));
const authorization = process.env.ROOST_TOKEN ? { Authorization: 'Bearer ' + process.env.ROOST_TOKEN } : {};

const rooms = new Map(); // those served here, by name: { size, epoch, timer }
let self; // the agent's node, once it answers
let changes = 0; // events so far

// ask calls the agent. Its errors have the agent's code, unless no agent answers.
async function ask(method, path, body = {}) {
  const request = { method, headers: { ...authorization }, signal: AbortSignal.timeout(15_000) };
  if (method !== 'GET') {
    request.headers['Content-Type'] = 'application/json';
    request.body = JSON.stringify(body);
  }
  const response = await fetch(agent + path, request);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error), answer);
  return answer;
}

const path = (room) => '/v1/rooms/' + encodeURIComponent(room);

// locate returns the node of the room: by its pin, or by the hash if the agent has no store.
async function locate(room, size) {
  try {
    return await ask('POST', path(room) + '/resolve', { size });
  } catch (err) {
    if (err.code !== 'no_store') throw err;
    const { owner } = await ask('GET', '/v1/place?key=' + encodeURIComponent(room));
    return { node: owner, hosted: owner.id === self, epoch: 0 };
  }
}

// settle looks up the node of the room, and starts or stops serving the room here.
async function settle(room, size) {
  let at, seen;
  do { // an event that came before the answer may be newer than it
    seen = changes;
    at = await locate(room, size);
  } while (seen !== changes);
  if (at.hosted) {
    clearTimeout(rooms.get(room)?.timer);
    // At half of the time, so that one retry is left before the hosting expires.
    const timer = at.touch_within_s && setTimeout(touch, at.touch_within_s * 500, room);
    rooms.set(room, { size, epoch: at.epoch, timer });
  } else {
    drop(room);
  }
  return at;
}

// drop stops serving a room. A real server closes its participants' connections here,
// and they join again.
function drop(room) {
  clearTimeout(rooms.get(room)?.timer);
  rooms.delete(room);
}

// touch checks whether a room that is served here still lives here.
async function touch(room) {
  const served = rooms.get(room);
  try {
    if (served) await settle(room, served.size);
  } catch (err) {
    console.error(`${room}: ${err.message}`);
    if (rooms.get(room) !== served) return; // another call has changed it
    clearTimeout(served.timer);
    if (err.code === 'not_ready') drop(room); // the agent's lease ran out: it owns nothing
    else served.timer = setTimeout(touch, 500, room);
  }
}

async function touchAll() {
  for (const room of [...rooms.keys()]) await touch(room);
}

// events yields the events of the agent until the stream breaks.
async function* events() {
  const abort = new AbortController();
  const silence = setTimeout(() => abort.abort(new Error('the stream is silent')), 40_000); // a comment comes every 15 s
  try {
    const response = await fetch(agent + '/v1/events', { signal: abort.signal });
    if (!response.ok) throw new Error(`the stream is refused with ${response.status}`);
    let text = '';
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      silence.refresh();
      const blocks = (text + chunk).split('\n\n');
      text = blocks.pop(); // the beginning of the next one
      for (const block of blocks) {
        const kind = /^event: (.*)$/m.exec(block)?.[1];
        if (kind) yield { kind, data: JSON.parse(/^data: (.*)$/m.exec(block)[1]) };
      }
    }
  } finally {
    clearTimeout(silence);
  }
}

// follow keeps a stream of events open. It does not wait for the work of an event: the
// agent drops slow readers.
async function follow() {
  for (let wait = 100; ; wait = Math.min(2 * wait, 5000)) {
    try {
      self ??= (await ask('POST', '/v1/undrain?wait=0s')).self; // the last stop drained it
      let first = true; // earlier moves are not sent
      for await (const { kind, data } of events()) {
        wait = 100;
        changes++;
        if (kind === 'moved') data.moved.forEach(taken);
        if (first || data.resync || data.released?.length) touchAll();
        first = false;
      }
    } catch (err) {
      console.error(`${agent}: ${err.message}`);
    }
    await sleep(wait * (0.5 + Math.random())); // not all servers at the same time
  }
}

// taken drops a room that has moved away, unless it has moved back since.
function taken({ room, to, epoch }) {
  if (to !== self && epoch > rooms.get(room)?.epoch) drop(room);
}

async function join(room, size) {
  if (!self) throw new Error('the agent has not answered yet');
  const at = await settle(room, size);
  const body = { room, node: at.node?.id };
  if (at.hosted) return { status: 200, body };
  if (!at.node?.api_addr) throw new Error('the owner has no api_addr, or is gone');
  return { status: 307, body, headers: { Location: `http://${at.node.api_addr}/join/${encodeURIComponent(room)}?size=${size}` } };
}

async function serve(request) {
  const url = new URL(request.url, listen);
  if (url.pathname === '/rooms') return { status: 200, body: { node: self, rooms: [...rooms.keys()] } };
  if (!url.pathname.startsWith('/join/')) return { status: 404, body: { error: 'GET /join/<room>?size=N or /rooms' } };
  try {
    const room = decodeURIComponent(url.pathname.slice('/join/'.length));
    return await join(room, Number(url.searchParams.get('size')) || 1);
  } catch (err) {
    if (err instanceof URIError || err.code === 'bad_request') return { status: 400, body: { error: err.message } };
    return { status: 503, body: { error: err.message, code: err.code }, headers: { 'Retry-After': '1' } };
  }
}

const server = http.createServer(async (request, response) => {
  const { status, body, headers } = await serve(request);
  response.writeHead(status, { ...headers, 'Content-Type': 'application/json' });
  response.end(JSON.stringify(body) + '\n');
});

// stop drains the agent, waits for running joins, and deletes the rooms. A real server
// would first wait for its calls to end.
async function stop() {
  await ask('POST', '/v1/drain?wait=5s').catch((err) => console.error(err.message));
  await new Promise((done) => { server.close(done); server.closeIdleConnections(); });
  for (const room of [...rooms.keys()]) {
    drop(room);
    await ask('DELETE', path(room)).catch((err) => console.error(`${room}: ${err.message}`));
  }
  process.exit(0);
}

process.once('SIGTERM', stop);
server.listen(Number(listen.port), listen.hostname, follow);
