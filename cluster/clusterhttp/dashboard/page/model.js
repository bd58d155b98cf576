// The state of the cluster, and the changes for the log. This module does not touch the
// page.

import { plural } from "./dom.js";

const lasting = 5000; // ms, of a drift that gets an entry

export class Model {
  self = "";
  members = []; // of /v1/members
  lost = []; // members that have gone lately, of /v1/members
  drift = 0;
  table = null; // of /v1/partitions; events update the owners immediately
  counts = new Map(); // partitions by node
  moved = new Map(); // partition → { from, at } of its last move
  focus = ""; // the only node to show

  // The connection.
  streaming = false;
  answered = 0; // ms, time of the last response
  fault = ""; // of the connection; "": none
  retry = 0; // ms, time of the next poll

  ttl = 6000;
  #life = ""; // of the agent: versions of another incarnation are not comparable
  #version = 0; // of the last known change
  #apart = new Map(); // id → start of its drift; 0: it has an entry
  #known = null; // live ids; null before the first response
  #listeners = [];

  // listen calls f with a kind and a value: "change" of anything, "moves" (of these
  // partitions), "table" (a different one), "focus", "link", "log" (an entry).
  listen(f) { this.#listeners.push(f); }
  emit(kind, what) { for (const f of this.#listeners) f(kind, what); }

  heard() {
    this.answered = Date.now();
    this.fault = "";
  }

  setFocus(id) {
    this.focus = this.focus === id ? "" : id;
    this.emit("focus");
    this.emit("change");
  }

  // setMembers applies a response of /v1/members. If an event has overtaken the response,
  // its figures are still the latest, but its list of members is not.
  setMembers(m) {
    const life = `${m.self} ${m.members.find((member) => member.id === m.self)?.incarnation}`;
    if (life !== this.#life || m.version >= this.#version) {
      this.#setLive(m);
      Object.assign(this, { self: m.self, drift: m.drift });
      this.#life = life;
      this.#version = m.version;
    }
    const before = new Map(this.members.map((old) => [old.id, old]));
    this.members = m.members.filter((member) => this.#known.has(member.id));
    this.lost = (m.lost ?? []).filter(({ id }) => !this.#known.has(id));
    for (const member of this.members) this.#compare(before.get(member.id), member);
    this.emit("change");
  }

  #setLive(m) {
    if (this.self && m.self !== this.self) this.note("info", `now seen from ${m.self}`);
    const live = new Set(m.members.map((member) => member.id));
    for (const id of this.#known ?? []) if (!live.has(id)) this.note("left", `${id} ${m.lost?.find((l) => l.id === id)?.reason ?? "left"}`);
    for (const id of this.#known ? live : []) if (!this.#known.has(id)) this.note("joined", `${id} joined`);
    for (const id of this.#apart.keys()) if (!live.has(id)) this.#apart.delete(id);
    this.#known = live;
  }

  #compare(old, member) {
    if (!old) return;
    const { id } = member;
    if (old.incarnation && old.incarnation !== member.incarnation) this.note("joined", `${id} restarted`);
    if (old.state !== member.state) this.note("info", `${id} is ${member.state}`);
    if (old.weight !== member.weight) this.note("info", `${id} has weight ${member.weight}, was ${old.weight}`);
    // After a change all members have another table for a moment.
    const since = this.#apart.get(id);
    if (member.in_sync) this.#apart.delete(id);
    else if (since === undefined) this.#apart.set(id, Date.now());
    else if (since && Date.now() - since > lasting) {
      this.#apart.set(id, 0); // it has an entry
      this.note("warn", `${id} has had another table for some seconds`);
    }
  }

  // setTable applies a response of /v1/partitions, unless an event has overtaken it.
  // Changes without an event happened while there was no stream.
  setTable(table) {
    if (table.version < this.#version) return false;
    const old = this.table;
    this.table = table;
    this.counts = new Map(Object.entries(table.counts));
    if (!old || old.owners.length !== table.owners.length) {
      this.moved.clear();
      this.emit("table");
    } else {
      const moves = [];
      table.owners.forEach((to, partition) => {
        const from = old.owners[partition];
        if (from !== to) moves.push({ partition, from, to });
      });
      this.#noteMoves(moves);
      this.#moves(moves);
    }
    this.emit("change");
    return true;
  }

  // apply applies a batch of events. The next responses complete a full batch, for example
  // with members that left while there was no stream. They also do so after a restart of
  // the agent, because its versions are lower at first.
  apply(batch) {
    if (batch.version <= this.#version || !this.table) return;
    this.#version = batch.version;
    const moves = batch.moved.filter((m) => this.table.owners[m.partition] === m.from);
    for (const { partition, from, to } of moves) {
      this.table.owners[partition] = to;
      this.#count(from, -1);
      this.#count(to, +1);
    }
    this.#noteLives(batch, moves);
    this.members = this.members.filter((m) => this.#known.has(m.id));
    this.#moves(moves);
    this.emit("change");
  }

  #count(id, more) {
    if (id) this.counts.set(id, (this.counts.get(id) ?? 0) + more); // an empty id is no node
  }

  // noteLives adds an entry for each member that left or joined, with the moves caused by
  // it, and one for the other moves. A response may have added some before.
  #noteLives(batch, moves) {
    const joined = new Set(batch.joined), left = new Set(batch.left);
    const rest = new Set(moves);
    const because = (id, kind, what, side) => {
      const own = moves.filter((m) => m[side] === id);
      own.forEach((m) => rest.delete(m));
      this.note(kind, own.length ? `${id} ${what}: ${describe(own)}` : `${id} ${what}`);
    };
    for (const id of left) {
      if (!joined.has(id) && this.#known.has(id)) because(id, "left", batch.reasons?.[id] ?? "left", "from");
      this.#known.delete(id);
      if (!this.counts.get(id)) this.counts.delete(id);
    }
    for (const id of joined) {
      if (!this.#known.has(id)) because(id, "joined", left.has(id) ? "restarted" : "joined", "to");
      this.#known.add(id);
    }
    for (const m of this.members) if (joined.has(m.id)) m.incarnation = ""; // this incarnation has an entry
    this.#noteMoves([...rest]);
  }

  #moves(moves) {
    if (moves.length === 0) return;
    const at = Date.now();
    for (const { partition, from } of moves) this.moved.set(partition, { from, at });
    this.emit("moves", moves.map((m) => m.partition));
  }

  #noteMoves(moves) {
    if (moves.length) this.note(moves.some((m) => !m.to) ? "warn" : "moved", describe(moves, true));
  }

  note(kind, text) { this.emit("log", { at: new Date(), kind, text }); }
}

// describe describes moves; with all, it names both ends.
function describe(moves, all = false) {
  const ends = (side) => [...new Set(moves.map((m) => m[side]))];
  const name = (ids) => ids.length === 1 ? ids[0] || "no node" : plural(ids.length, "node");
  const what = `${plural(moves.length, "partition")} moved`;
  const [from, to] = [ends("from"), ends("to")];
  if (all) return `${what} from ${name(from)} to ${name(to)}`;
  return to.length === 1 && from.length > 1 ? `${what} from ${name(from)}` : `${what} to ${name(to)}`;
}
