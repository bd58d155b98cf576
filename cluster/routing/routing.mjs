// SPDX-License-Identifier: Apache-2.0
// Keeps a copy of a cluster's table in a process that is not a member: the Client of the Go package
// routing, for Node.js and browsers, without dependencies. cluster/routing/doc.go says what it promises. Times are
// in milliseconds.
//
//   const client = new RoutingClient({ agents: ["10.0.0.1:8401", "10.0.0.2:8401"] });
//   await client.ready;
//   const owner = client.place("room-17"); // owner.api_addr serves room-17
//   client.watch((change) => { … });             // {moved, left, joined}
//   client.close();
//
// A member has the fields of TableMember in /v1/openapi.json.

const mask = (1n << 64n) - 1n;
const [p1, p2, p3, p4, p5] = [
  0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n,
];
const rotated = (x, by) => ((x << by) | (x >> (64n - by))) & mask;
const round = (acc, lane) => (rotated((acc + lane * p2) & mask, 31n) * p1) & mask;

// xxh64 returns the hash xxHash64 of bytes with seed 0, as a BigInt.
export function xxh64(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = bytes.length;
  let at = 0;
  let h = p5;
  if (end >= 32) {
    const acc = [(p1 + p2) & mask, p2, 0n, (mask + 1n - p1) & mask];
    for (; at + 32 <= end; at += 32) {
      for (let i = 0; i < 4; i++) {
        acc[i] = round(acc[i], view.getBigUint64(at + 8 * i, true));
      }
    }
    h = (rotated(acc[0], 1n) + rotated(acc[1], 7n) + rotated(acc[2], 12n) + rotated(acc[3], 18n)) & mask;
    for (const a of acc) {
      h = ((h ^ round(0n, a)) * p1 + p4) & mask;
    }
  }
  h = (h + BigInt(end)) & mask;
  for (; at + 8 <= end; at += 8) {
    h = (rotated(h ^ round(0n, view.getBigUint64(at, true)), 27n) * p1 + p4) & mask;
  }
  if (at + 4 <= end) {
    h = (rotated(h ^ ((BigInt(view.getUint32(at, true)) * p1) & mask), 23n) * p2 + p3) & mask;
    at += 4;
  }
  for (; at < end; at++) {
    h = (rotated(h ^ ((BigInt(bytes[at]) * p5) & mask), 11n) * p1) & mask;
  }
  h = ((h ^ (h >> 33n)) * p2) & mask;
  h = ((h ^ (h >> 29n)) * p3) & mask;
  return h ^ (h >> 32n);
}

const utf8 = new TextEncoder();

// partitionOf returns the partition of a key: the same as on every node.
export const partitionOf = (key, partitions) => (partitions < 1 ? 0 : Number(xxh64(utf8.encode(key)) % BigInt(partitions)));

// digestOf returns the digest of a table: 16 hexadecimal digits.
export function digestOf({ partitions, strategy, owners }) {
  const out = [];
  const uvarint = (n) => {
    for (; n > 127; n = Math.floor(n / 128)) {
      out.push((n % 128) | 128);
    }
    out.push(n);
  };
  const text = (s) => {
    const b = utf8.encode(s);
    uvarint(b.length);
    out.push(...b);
  };
  uvarint(partitions);
  text(strategy);
  const numbers = new Map();
  for (const id of owners) {
    if (id === "") {
      continue;
    }
    if (numbers.has(id)) {
      uvarint(numbers.get(id));
      continue;
    }
    numbers.set(id, numbers.size + 1);
    uvarint(numbers.size);
    text(id);
  }
  const h = xxh64(Uint8Array.from(out));
  return (h === 0n ? 1n : h).toString(16).padStart(16, "0");
}

// State is what an agent has sent. It is not modified.
class State {
  constructor(update, table, members, cluster) {
    this.cluster = cluster; // "" if the agent does not say
    this.table = table; // {partitions, strategy, owners}
    this.digest = update.digest; // of the table
    this.members = members; // by id
    this.stale = update.stale === true;
    this.running = new Map((update.running ?? []).map((r) => [r.partition, r.node]));
  }

  // after returns the state after an update, and throws if that contradicts itself.
  static after(from, update) {
    const whole = update.table;
    if (!whole && !from) {
      throw new Error("the first update has no table");
    }
    let table = from?.table;
    if (whole) {
      if (whole.format !== 1 || whole.partitions < 1 || whole.owners.length !== whole.partitions) {
        throw new Error(`a table of format ${whole.format} with ${whole.partitions} partitions cannot be read`);
      }
      table = { partitions: whole.partitions, strategy: whole.strategy, owners: whole.owners };
    } else if (update.moved?.length > 0) {
      table = { ...table, owners: table.owners.slice() };
      for (const m of update.moved) {
        table.owners[m.partition] = m.to;
      }
    }
    const digest = table === from?.table ? from.digest : digestOf(table);
    if (digest !== update.digest) {
      throw new Error(`its digest is ${update.digest}, but the digest of its content is ${digest}`);
    }
    const members = new Map(whole ? [] : from.members);
    for (const id of update.gone ?? []) {
      members.delete(id);
    }
    for (const m of update.members ?? []) {
      members.set(m.id, Object.freeze(m));
    }
    return new State(update, table, members, whole ? update.cluster ?? "" : from.cluster);
  }
}

const longestEvent = 32 << 20; // as in Go, for an agent that is none

// events yields the data of the events of one type, and calls said with the length of each chunk.
async function* events(body, type, said) {
  const text = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  let kind = "";
  let data = [];
  let length = 0; // of data
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    said(value.length);
    const lines = text.decode(value, { stream: true }).split("\n");
    lines[0] = rest + lines[0];
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (kind === type && data.length > 0) {
          yield data.join("\n");
        }
        kind = "";
        data = [];
        length = 0;
      } else if (line.startsWith("event:")) {
        kind = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).replace(/^ /, ""));
        length += line.length;
      }
    }
    if (length + rest.length > longestEvent) {
      throw new Error("an event has more than 32 MiB: is it a roost agent?");
    }
  }
}

// agentOf returns what status shows of an agent, its URL without credentials, and the header Authorization.
function agentOf(address, token) {
  const base = address.includes("://") ? address : `http://${address}`;
  const name = base.replace(/\/$/, "").replace(/^([^:@]*:\/\/)?.*@/s, "$1…@");
  try {
    const url = new URL(base);
    if (!/^https?:$/.test(url.protocol) || url.search || url.hash) {
      throw new TypeError("it is no base of an API");
    }
    const user = [url.username, url.password].map(decodeURIComponent).join(":");
    const basic = user === ":" ? "" : `Basic ${btoa(String.fromCharCode(...utf8.encode(user)))}`;
    url.username = url.password = ""; // fetch refuses credentials in a URL
    return { name, url: url.href.replace(/\/$/, ""), authorization: token ? `Bearer ${token}` : basic };
  } catch { // its error would quote the address
    throw new TypeError(`agents: "${name}" is neither host:port nor the URL of an agent`);
  }
}

const firstPause = 100;
const leastPause = 200;
const longestPause = 3000;
const someBytes = 512; // more than the comments of six thirds of an idle timeout

// RoutingClient follows one of the agents at a time, and another one when that fails.
export class RoutingClient {
  #agents;
  #idleTimeout;
  #scope;
  #fetch;
  #started = performance.now();
  #heard = null;
  #cluster = ""; // of the first table that was not stale
  #state = null;
  #owners = new Map(); // members that the table names, also those that have gone
  #current = null;
  #other = null;
  #next = 0;
  #failed = 0;
  #errors = new Map();
  #timer = null;
  #watchers = new Set();
  #closed = false;
  #first;

  // agents are host:port or URLs. A user and a password in a URL are sent with each request to that agent. token is sent to all, in
  // their place. idleTimeout is how long an agent may say nothing until another one is asked, too: 300 to 180000, by default 1000. fetch
  // replaces the global one. if scope is set, this scope of the agents is followed instead of all members.
  constructor({ agents, scope = "", token = "", idleTimeout = 1000, fetch: send = globalThis.fetch }) {
    if (!Array.isArray(agents) || agents.length === 0) {
      throw new TypeError("agents is empty: name the HTTP address of at least one agent");
    }
    if (!(idleTimeout >= 300 && idleTimeout <= 180000)) {
      throw new RangeError(`idleTimeout is ${idleTimeout}; it must be 300 to 180000`);
    }
    this.#agents = agents.map((a) => agentOf(a, token));
    for (let i = this.#agents.length - 1; i > 0; i--) {
      const j = Math.floor(Math.random() * (i + 1));
      [this.#agents[i], this.#agents[j]] = [this.#agents[j], this.#agents[i]];
    }
    this.#idleTimeout = idleTimeout;
    this.#scope = scope;
    this.#fetch = (...args) => send(...args);
    this.ready = new Promise((resolve) => {
      this.#first = resolve;
    });
    this.#look();
  }

  // place returns the member that owns key, and throws if there is no table yet, or no owner.
  place(key) {
    return this.ownerOf(this.partition(key));
  }

  // partition returns the partition of key, and throws if there is no table yet.
  partition(key) {
    if (!this.#state) {
      throw new Error("not ready: no agent has sent a table yet");
    }
    return partitionOf(key, this.#state.table.partitions);
  }

  // ownerOf returns the owner of a partition, or the member that runs it until the owner does.
  ownerOf(partition) {
    const s = this.#state;
    const owner = s && (s.members.get(s.running.get(partition)) ?? this.#owners.get(s.table.owners[partition]));
    if (!owner) {
      const scope = this.#scope && `, or no member belongs to the scope "${this.#scope}"`;
      throw new Error(s ? `no member can own anything: all are draining or settling, or have weight 0${scope}` : "not ready: no agent has sent a table yet");
    }
    return owner;
  }

  // members returns the live members, by id.
  get members() {
    return [...(this.#state?.members.values() ?? [])].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  // age returns how long ago an agent has confirmed the table.
  get age() {
    return Math.round(performance.now() - (this.#heard ?? this.#started));
  }

  // status says how the routing client is doing: agent is "" if none is followed, errors are those of the agents by
  // their addresses, without credentials.
  get status() {
    return { agent: this.#current?.agent.name ?? "", age: this.age, stale: this.#state?.stale ?? false, errors: Object.fromEntries(this.#errors) };
  }

  // watch calls back with each change: moved has {partition, from, to}, left and joined have ids. The first change, if there is
  // a table, is from nothing. An error of callback is reported as uncaught, like that of an event listener. watch returns a function that ends the calls.
  watch(callback) {
    this.#watchers.add(callback);
    if (this.#state) {
      callback(changes(null, this.#state));
    }
    return () => this.#watchers.delete(callback);
  }

  // close ends the routing client, which keeps a Node.js program running until then. Lookups go on with the last table.
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#drop(this.#current);
    this.#drop(this.#other);
  }

  // #look drops what takes too long, and asks another agent if that is due.
  #look() {
    clearTimeout(this.#timer);
    if (this.#closed) {
      return;
    }
    const now = performance.now();
    const doubt = this.#doubt(now);
    let wake = (this.#current?.heard ?? now) + this.#idleTimeout + 1;
    if (doubt === "") {
      this.#drop(this.#other);
      this.#failed = 0;
      this.#errors.clear();
    } else {
      if (this.#current) {
        this.#errors.set(this.#current.agent.name, doubt);
      }
      if (this.#other && now > this.#until()) {
        this.#fail(this.#other, "sends no table: is it ready?");
      }
      if (!this.#other && now >= this.#next) {
        this.#ask(now);
      }
      wake = this.#other ? this.#until() + 1 : this.#next;
    }
    this.#timer = setTimeout(() => this.#look(), Math.max(1, wake - now));
  }

  // #until returns when the agent that is asked has taken too long. A large table may take its time to arrive.
  #until() {
    return (this.#other.bytes > someBytes ? this.#other.heard : this.#other.since) + 2 * this.#idleTimeout;
  }

  #doubt(now) {
    if (!this.#current) {
      return "is not followed";
    }
    if (now - this.#current.heard > this.#idleTimeout) {
      return "is silent: its process is paused, or the network is cut";
    }
    return this.#state.stale ? "its own table may be out of date, because it is isolated or rejoining" : "";
  }

  #ask(now) {
    const agent = this.#agents.shift();
    this.#agents.push(agent);
    const stream = { agent, since: now, heard: now, bytes: 0, abort: new AbortController() };
    this.#other = stream;
    this.#read(stream).then(() => "has ended the stream", (err) => String(err.cause?.message ?? err.message ?? err)).then((why) => {
      if (stream === this.#current || stream === this.#other) {
        this.#fail(stream, why);
        this.#look();
      }
    });
  }

  async #read(stream) {
    const { url: base, authorization } = stream.agent;
    const headers = authorization ? { Authorization: authorization } : {};
    const scope = this.#scope ? `&scope=${encodeURIComponent(this.#scope)}` : "";
    const url = `${base}/v1/table?keep_alive=${Math.floor(this.#idleTimeout / 3)}ms${scope}`;
    // No agent redirects, and the token must not go elsewhere. A browser shows no status of a redirect.
    const response = await this.#fetch(url, { headers, redirect: "manual", signal: stream.abort.signal });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      throw new Error(problem.error ?? `${response.status || "redirect"}: is it a roost agent whose release has /v1/table?`);
    }
    let state = null;
    const said = (bytes) => {
      stream.bytes += bytes;
      stream.heard = performance.now();
      if (stream === this.#current) {
        this.#heard = stream.heard;
      }
    };
    for await (const data of events(response.body, "update", said)) {
      state = State.after(state, JSON.parse(data));
      this.#take(stream, state);
    }
  }

  #take(stream, state) {
    if (this.#cluster && state.cluster && state.cluster !== this.#cluster) {
      throw new Error(`belongs to cluster "${state.cluster}", not to "${this.#cluster}"`);
    }
    if (stream === this.#current) {
      this.#show(state);
    } else if (stream === this.#other && state.stale && (this.#current || this.#better())) {
      this.#fail(stream, "has no newer table: its own table may be out of date");
    } else if (stream === this.#other) {
      this.#drop(this.#current);
      this.#current = stream;
      this.#other = null;
      this.#heard = stream.heard;
      this.#show(state);
    }
    this.#look();
  }

  // The last table is better than a stale one, as long as an agent was not asked that may have the present one.
  #better() {
    return this.#state && !this.#state.stale && this.#failed < this.#agents.length;
  }

  #show(state) {
    if (!state.stale) { // an agent that is cut off may be one of another cluster, at an address that was used again
      this.#cluster ||= state.cluster;
    }
    const before = this.#state;
    const owners = new Map();
    for (const id of new Set(state.table.owners)) {
      if (id !== "") {
        owners.set(id, state.members.get(id) ?? this.#owners.get(id) ?? Object.freeze({ id, api_addr: "", state: "left" }));
      }
    }
    this.#owners = owners;
    this.#state = state;
    this.#first();
    const change = changes(before, state);
    if (change.moved.length + change.left.length + change.joined.length > 0) {
      for (const callback of [...this.#watchers]) {
        try {
          callback(change);
        } catch (err) {
          queueMicrotask(() => { throw err; }); // for the application, not for the stream
        }
      }
    }
  }

  #fail(stream, why) {
    this.#drop(stream);
    this.#errors.set(stream.agent.name, why);
    this.#failed++;
    const rounds = this.#failed / this.#agents.length;
    const pause = Number.isInteger(rounds) ? Math.min(leastPause * 2 ** Math.min(rounds - 1, 8), longestPause) : firstPause;
    this.#next = performance.now() + Math.random() * pause;
  }

  #drop(stream) {
    if (!stream) {
      return;
    }
    if (stream === this.#current) {
      this.#current = null;
    }
    if (stream === this.#other) {
      this.#other = null;
    }
    stream.abort.abort();
  }
}

// changes returns what differs between two states; from null, everything.
function changes(from, to) {
  const moved = [];
  for (let p = 0; p < to.table.partitions; p++) {
    const [was, is] = [from?.table.owners[p] ?? "", to.table.owners[p]];
    if (was !== is) {
      moved.push({ partition: p, from: was, to: is });
    }
  }
  const same = (m, others) => others?.get(m.id)?.incarnation === m.incarnation;
  const left = [...(from?.members.values() ?? [])].filter((m) => !same(m, to.members)).map((m) => m.id);
  const joined = [...to.members.values()].filter((m) => !same(m, from?.members)).map((m) => m.id);
  return { moved, left, joined };
}
