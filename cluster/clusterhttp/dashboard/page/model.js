// The state of the cluster as the agent reports it. This module does not touch the page.

const recent = 60_000; // ms, for which a move is marked on the map

export const lastTable = "This agent is isolated, fenced or stalled: the owners are those of its last table.";

export class Model {
  self = "";
  members = []; // of /v1/members
  lost = []; // members that have gone lately, of /v1/members, the crashed and expired ones first
  ahead = []; // nodes whose clock keeps them out, of /v1/members
  alone = []; // ids of nodes that are heard over TCP alone
  divergence = 0;
  table = null; // of /v1/partitions; events update the owners immediately
  counts = new Map(); // partitions by node
  moved = new Map(); // partition → { from, at } of a recent move
  stats = null; // of /v1/stats
  history = null; // of /v1/history
  focus = ""; // what the map highlights: "n" and the id of a node, or "z" and a zone

  // The connection.
  streaming = false;
  front = false; // of the windows with this page, this one may have the event stream
  answered = 0; // ms, time of the last response
  problem = ""; // of the connection; "": none
  retry = 0; // ms, time of the next poll

  #remembered = 0; // ms, time of the history
  #past = ""; // the events of the history
  #life = ""; // of the agent: versions of another incarnation are not comparable
  #version = 0; // of the last known change
  #known = new Set(); // live ids
  #listeners = [];

  // listen calls f with a kind: "change" of anything, "moves" of partitions or another table,
  // "focus", "link", "log" (another event).
  listen(f) { this.#listeners.push(f); }
  emit(kind) { for (const f of this.#listeners) f(kind); }

  get ttl() { return this.stats?.settings.ttl_ms || 6000; }
  get heartbeat() { return this.stats?.settings.heartbeat_ms || this.ttl / 3; }

  // stale reports whether the agent is isolated, fenced or stalled: its table is from before. One that is
  // fenced or stalled says that it is joining.
  get stale() {
    const { state, holds = [] } = this.stats ?? {};
    return ["isolated", "joining"].includes(state) || holds.some((h) => ["isolated", "duplicate"].includes(h.cause));
  }

  // age is how old the history is, in ms.
  get age() { return Date.now() - this.#remembered; }

  heard() {
    this.answered = Date.now();
    this.problem = "";
  }

  setFocus(focus) {
    this.focus = this.focus === focus ? "" : focus;
    this.emit("focus");
  }

  // setMembers applies a response of /v1/members. If an event has overtaken the response,
  // its numbers are still the latest, but its list of members is not.
  setMembers(m) {
    const life = `${m.self} ${m.members.find((member) => member.id === m.self)?.incarnation}`;
    if (life !== this.#life || m.version >= this.#version) {
      this.#known = new Set(m.members.map((member) => member.id));
      Object.assign(this, { self: m.self, divergence: m.divergence });
      this.#life = life;
      this.#version = m.version;
      this.#setLost((m.lost ?? []).filter(({ id }) => !this.#known.has(id)));
    }
    this.members = m.members.filter((member) => this.#known.has(member.id));
    this.ahead = m.ahead ?? [];
    this.alone = Object.keys(m.streams_alone ?? {}).sort();
    this.emit("change");
  }

  #setLost(gone) {
    this.lost = [...gone.filter((l) => l.reason !== "left"), ...gone.filter((l) => l.reason === "left")];
  }

  // end makes lost members of those that a batch ends, until the next response has more about them:
  // otherwise the cluster would look smaller and healthy for a moment.
  #end({ left, joined, reasons }) {
    const ended = this.members.filter(({ id }) => left.includes(id) && !joined.includes(id));
    const gone = ended.map((m) => ({ ...m, reason: reasons?.[m.id] ?? "expired", ago_ms: 0, partitions: this.counts.get(m.id) ?? 0 }));
    this.#setLost([...gone, ...this.lost.filter(({ id }) => !joined.includes(id))]);
  }

  setStats(stats) {
    this.stats = stats;
    this.emit("change");
  }

  // setHistory applies a response of /v1/history. The agent alone knows what happened: this page
  // concludes no event from what it sees.
  setHistory(history) {
    const past = JSON.stringify([history.self, history.events]); // an event about rooms can grow
    const news = past !== this.#past;
    this.history = history;
    this.#past = past;
    this.#remembered = Date.now();
    if (news) this.emit("log");
    this.emit("change");
  }

  // setTable applies a response of /v1/partitions, unless an event has overtaken it.
  setTable(table) {
    if (table.version < this.#version) return false;
    const old = this.table;
    this.table = table;
    this.counts = new Map(Object.entries(table.counts));
    if (!old || old.owners.length !== table.owners.length) {
      this.moved.clear();
    } else {
      this.#mark(table.owners.flatMap((to, partition) => (old.owners[partition] === to ? [] : { partition, from: old.owners[partition] })));
    }
    this.emit("moves");
    this.emit("change");
    return true;
  }

  // apply applies a batch of events. The next responses complete a full batch, for example
  // with members that left while there was no stream. They also do so after a restart of
  // the agent, because its versions are lower at first.
  apply(batch) {
    if (batch.version <= this.#version || !this.table) return;
    this.#version = batch.version;
    this.#end(batch);
    const moves = batch.moved.filter((m) => this.table.owners[m.partition] === m.from);
    for (const { partition, from, to } of moves) {
      this.table.owners[partition] = to;
      this.#count(from, -1);
      this.#count(to, +1);
    }
    for (const id of batch.left) {
      this.#known.delete(id);
      if (!this.counts.get(id)) this.counts.delete(id);
    }
    for (const id of batch.joined) this.#known.add(id);
    this.members = this.members.filter((m) => this.#known.has(m.id));
    this.#mark(moves);
    this.emit("moves");
    this.emit("change");
  }

  #count(id, more) {
    if (id) this.counts.set(id, (this.counts.get(id) ?? 0) + more); // an empty id is no node
  }

  #mark(moves) {
    const at = Date.now();
    for (const { partition, from } of moves) this.moved.set(partition, { from, at });
  }

  // fade forgets moves that are not recent any more, and reports whether there were some.
  fade() {
    const before = this.moved.size, since = Date.now() - recent;
    for (const [partition, { at }] of this.moved) if (at < since) this.moved.delete(partition);
    return this.moved.size < before;
  }
}
