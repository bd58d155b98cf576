// A toy media server next to a roost agent, explained in docs/sidecar.md.
//
//   AGENT=http://127.0.0.1:8401 LISTEN=127.0.0.1:9001 node server.mjs
//
// LISTEN is the agent's --api-addr. ROOST_TOKEN is the agent's bearer token, if it
// needs one. It needs Node.js 18 or newer and no packages.
import http from 'node:http';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { ask, drain, events, locate, module, roomPath } from './agent.mjs';

const listen = new URL('http://' + (process.env.LISTEN ?? '127.0.0.1:9001'));
const idle = 3000; // ms that a room lives without participants
const linger = 5000; // ms that the participants of a room that has moved have to follow
const evacuation = { rate: 50, deadline_ms: 20_000 }; // of the rooms at the end, see /v1/drain

const rooms = new Map(); // those served here, by name: { size, epoch, calls, kept, timer, end, ended }
const calls = new Set(); // the streams to participants, also to those of rooms that have moved away
let self; // the agent's node, once it answers
let changes = 0; // events so far
let stopping = false; // no further streams

const directive = (room, at) => ({ room, to: at.node?.id, addr: at.node?.api_addr, epoch: at.epoch });

// settle looks up the node of the room, and starts or stops serving the room here. Without
// touch the demand is a join, which does not lower the size of the room. A room that is kept
// stays without participants.
async function settle(room, demand, kept = false) {
  clearTimeout(rooms.get(room)?.end);
  await rooms.get(room)?.ended;
  let at, seen;
  do { // an event that came before the answer may be newer than it
    seen = changes;
    at = await locate(room, demand, self);
  } while (seen !== changes);
  if (!at.hosted) {
    drop(room, directive(room, at));
    return at;
  }
  const served = rooms.get(room) ?? { size: 0, calls: new Set() };
  served.size = demand.touch ? demand.size : Math.max(demand.size, served.size);
  served.epoch = at.epoch;
  served.kept ||= kept;
  rooms.set(room, served);
  // At half of the time, so that one retry is left before the hosting expires.
  later(room, served, at.touch_within_s * 500);
  clearTimeout(served.end);
  if (!served.kept && !served.calls.size) served.end = setTimeout(end, idle, room, served);
  return at;
}

// later touches the room after a time, soon if its size has changed.
function later(room, served, wait) {
  clearTimeout(served.timer);
  if (served.calls.size && served.calls.size !== served.size) wait = 100;
  if (wait) served.timer = setTimeout(touch, wait, room);
}

// drop stops serving a room. Its participants learn the new place, if one is known, and
// have some seconds to connect there before their streams end: make before break.
function drop(room, to) {
  const served = rooms.get(room);
  if (!served) return;
  rooms.delete(room);
  clearTimeout(served.timer);
  clearTimeout(served.end);
  if (to?.addr) for (const call of served.calls) send(call, 'directive', to);
  setTimeout(() => served.calls.forEach((call) => call.end()), to?.addr ? linger : 0);
}

// end ends a room without participants, so that nothing keeps its pin. A join waits for it.
function end(room, served) {
  served.ended = ask('DELETE', roomPath(room))
    .catch((err) => { if (err.code !== 'no_store') console.error(`${room}: ${err.message}`); })
    .finally(() => drop(room));
}

// touch checks whether a room that is served here still lives here, and reports its size.
async function touch(room) {
  const served = rooms.get(room);
  try {
    if (served) await settle(room, { size: served.calls.size || served.size, touch: true });
  } catch (err) {
    console.error(`${room}: ${err.message}`);
    if (rooms.get(room) !== served) return; // another call has changed it
    if (err.code === 'not_ready') drop(room); // the agent's lease ran out: it owns nothing
    clearTimeout(served.timer);
    if (rooms.has(room)) served.timer = setTimeout(touch, 500, room);
  }
}

async function touchAll() {
  for (const room of [...rooms.keys()]) await touch(room);
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
      console.error(`agent: ${err.message}`);
    }
    await sleep(wait * (0.5 + Math.random())); // not all servers at the same time
  }
}

// taken drops a room that has moved away, unless it has moved back since. A move has the
// fields of a directive.
function taken(moved) {
  if (moved.to !== self && moved.epoch > rooms.get(moved.room)?.epoch) drop(moved.room, moved);
}

// join redirects to the node of the room. Its caller counts the participants, so the room
// stays until this server ends.
async function join(room, { size }) {
  const at = await settle(room, { size }, true);
  const body = { room, node: at.node?.id };
  if (at.hosted) return { status: 200, body };
  if (!at.node?.api_addr) throw new Error('the owner has no api_addr, or is gone');
  return { status: 307, body, headers: { Location: `http://${at.node.api_addr}/join/${encodeURIComponent(room)}?size=${size}` } };
}

// where is the answer to resolve of reconnect.mjs.
async function where(room) {
  const body = directive(room, await settle(room, { size: 1 }));
  if (!body.addr) throw new Error('the owner has no api_addr, or is gone');
  return { status: 200, body };
}

const send = (call, event, data) => call.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);

// call streams to one participant of a room that lives here. The ticks stand for media.
async function call(room, { response }) {
  const at = await settle(room, { size: (rooms.get(room)?.calls.size ?? 0) + 1 });
  const served = rooms.get(room);
  if (!served || stopping) return { status: 421, body: directive(room, at) };
  if (response.destroyed) return undefined; // the participant has left
  served.calls.add(response);
  calls.add(response);
  clearTimeout(served.end);
  later(room, served, at.touch_within_s * 500);
  response.writeHead(200, { ...headers, 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  let n = 0;
  const tick = () => {
    if (response.writableLength > 65_536) response.destroy(); // it does not read
    else send(response, 'tick', { node: self, n: n++ });
  };
  tick();
  const timer = setInterval(tick, 50);
  response.on('close', () => {
    clearInterval(timer);
    calls.delete(response);
    served.calls.delete(response);
    if (rooms.get(room) === served) later(room, served, 100);
  });
  return undefined;
}

const headers = { 'Access-Control-Allow-Origin': '*' }; // the page of one server calls the others

async function serve(request, response) {
  try {
    const url = new URL(request.url, listen);
    const [, verb, name] = /^\/(join|where|call)\/(.+)$/.exec(url.pathname) ?? [];
    if (verb) {
      if (!self) throw new Error('the agent has not answered yet');
      const size = Number(url.searchParams.get('size')) || 1;
      return await { join, where, call }[verb](decodeURIComponent(name), { size, response });
    }
    switch (url.pathname) {
      case '/': return { status: 200, type: 'text/html; charset=utf-8', text: await readFile(new URL('page.html', import.meta.url)) };
      case '/reconnect.mjs': return { status: 200, type: 'text/javascript; charset=utf-8', text: await module() };
      case '/rooms': return { status: 200, body: { node: self, rooms: [...rooms.keys()] } };
      default: return { status: 404, body: { error: 'GET /join/<room>?size=N, /where/<room>, /call/<room>, /rooms or /' } };
    }
  } catch (err) {
    if (err instanceof URIError || err.code === 'bad_request') return { status: 400, body: { error: err.message } };
    return { status: 503, body: { error: err.message, code: err.code }, headers: { 'Retry-After': '1' } };
  }
}

const server = http.createServer(async (request, response) => {
  const answer = await serve(request, response);
  if (!answer) return; // a stream
  response.writeHead(answer.status, { ...headers, ...answer.headers, 'Content-Type': answer.type ?? 'application/json' });
  response.end(answer.text ?? JSON.stringify(answer.body) + '\n');
});

// evacuate has the agent move the rooms to other nodes, and serves on until the last
// participant has followed, or the time is over.
async function evacuate() {
  const deadline = Date.now() + evacuation.deadline_ms + linger;
  await drain(evacuation);
  for (;;) {
    const { evacuation: progress } = await ask('GET', '/v1/stats');
    if ((progress?.over ?? true) && !calls.size) return;
    if (Date.now() > deadline) throw new Error(`${calls.size} participants are left`);
    await sleep(50);
  }
}

// stop evacuates the rooms, waits for running joins, and ends the rooms that are left.
async function stop() {
  await evacuate().catch((err) => console.error(`stop: ${err.message}`));
  stopping = true;
  const closed = new Promise((done) => { server.close(done); });
  calls.forEach((call) => call.end());
  server.closeIdleConnections();
  await closed;
  await touchAll(); // one may have moved away unnoticed
  for (const room of [...rooms.keys()]) {
    drop(room);
    await ask('DELETE', roomPath(room)).catch((err) => console.error(`${room}: ${err.message}`));
  }
  process.exit(0);
}

process.once('SIGTERM', stop);
server.listen(Number(listen.port), listen.hostname, follow);
