// SPDX-License-Identifier: Apache-2.0
// The calls of server.mjs to its agent, and the stream of the agent's events.
const agent = process.env.AGENT ?? 'http://127.0.0.1:8401';
const authorization = process.env.ROOST_TOKEN ? { Authorization: 'Bearer ' + process.env.ROOST_TOKEN } : {};

export const roomPath = (room) => '/v1/rooms/' + encodeURIComponent(room);

// ask calls the agent. Its errors have the agent's code, unless no agent answers.
export async function ask(method, path, body = {}) {
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

// locate returns the node of the room: by its pin, or by hash if the agent has no store.
export async function locate(room, demand, self) {
  try {
    return await ask('POST', roomPath(room) + '/resolve', demand);
  } catch (err) {
    if (err.code !== 'no_store') throw err;
    const { owner } = await ask('GET', '/v1/place?key=' + encodeURIComponent(room));
    return { node: owner, hosted: owner.id === self, epoch: 0 };
  }
}

// drain has the agent take no new rooms, and move its rooms to other nodes if it has a store.
export async function drain(rooms) {
  try {
    await ask('POST', '/v1/drain?wait=5s', { rooms });
  } catch (err) {
    if (err.code !== 'no_store') throw err;
    await ask('POST', '/v1/drain?wait=5s');
  }
}

// module returns the agent's reconnect.mjs, for browsers.
export async function module() {
  const response = await fetch(agent + '/reconnect.mjs', { signal: AbortSignal.timeout(5000) });
  if (!response.ok) throw new Error(`reconnect.mjs: ${response.status}`);
  return response.text();
}

// events yields the events of the agent until the stream breaks.
export async function* events() {
  const abort = new AbortController();
  const idle = setTimeout(() => abort.abort(new Error('the stream is silent')), 40_000); // a comment comes every 15 s
  try {
    const response = await fetch(agent + '/v1/events', { headers: authorization, signal: abort.signal });
    if (!response.ok) throw new Error(`the stream is refused with ${response.status}`);
    let text = '';
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      idle.refresh();
      const blocks = (text + chunk).split('\n\n');
      text = blocks.pop(); // the beginning of the next one
      for (const block of blocks) {
        const kind = /^event: (.*)$/m.exec(block)?.[1];
        if (kind) yield { kind, data: JSON.parse(/^data: (.*)$/m.exec(block)[1]) };
      }
    }
  } finally {
    clearTimeout(idle);
  }
}
