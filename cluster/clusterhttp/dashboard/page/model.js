// What is known of the cluster, and the log of what changed. Nothing here touches
// the page.

import { plural } from "./dom.js";

const logged = 200; // entries that are kept
const lasting = 5000; // ms, of a drift that is worth an entry

export class Model {
  self = "";
  members = []; // as /v1/members has them
  converged = false;
  drift = 0;
  table = null; // as /v1/partitions has it; owners follow the events at once
  counts = new Map(); // partitions by node
  moved = new Map(); // partition → { from, at } of its last move
  log = []; // newest first
  focus = ""; // the node that is shown alone

  // The connection.
  streaming = false;
  answered = 0; // ms, when the agent was last heard of
  fault = ""; // why it is not heard of now; "" while it is
  retry = 0; // ms, when it is asked again

  ttl = 6000;
  #apart = new Map(); // id → since when it has run another table; 0: and it was told
  #known = null; // ids that are live; null before the first answer
  #listeners = [];

  // listen calls f with a kind and what comes with it: "change" of anything, "moves"
  // (of these partitions), "table" (an altogether other one), "focus", "link", "log"
  // (an entry).
  listen(f) { this.#listeners.push(f); }
  tell(kind, what) { for (const f of this.#listeners) f(kind, what); }

  heard() {
    this.answered = Date.now();
    this.fault = "";
  }

  setFocus(id) {
    this.focus = this.focus === id ? "" : id;
    this.tell("focus");
    this.tell("change");
  }

  setMembers(m) {
    if (this.self && m.self !== this.self) this.note("info", `now seen from ${m.self}`);
    this.self = m.self;
    const before = new Map(this.members.map((old) => [old.id, old]));
    const live = new Set(m.members.map((member) => member.id));
    if (this.#known) {
      for (const id of this.#known) if (!live.has(id)) this.note("left", `${id} left`, id);
      for (const id of live) if (!this.#known.has(id)) this.note("joined", `${id} joined`, id);
    }
    for (const member of m.members) this.#compare(before.get(member.id), member);
    this.#known = live;
    Object.assign(this, { members: m.members, converged: m.converged, drift: m.drift });
    this.tell("change");
  }

  #compare(old, member) {
    if (!old) return;
    const { id } = member;
    if (old.state !== member.state) this.note("info", `${id} is ${member.state}`, id);
    if (old.weight !== member.weight) this.note("info", `${id} has weight ${member.weight}, was ${old.weight}`, id);
    // After a change everybody runs another table for a moment.
    const since = this.#apart.get(id);
    if (member.in_sync) this.#apart.delete(id);
    else if (since === undefined) this.#apart.set(id, Date.now());
    else if (since && Date.now() - since > lasting) {
      this.#apart.set(id, 0); // it was told
      this.note("warn", `${id} runs another table, and has for some seconds`, id);
    }
  }

  // setTable takes what /v1/partitions says. What it has and no event told of has
  // happened while there were no events.
  setTable(table) {
    const old = this.table;
    this.table = table;
    this.counts = new Map(Object.entries(table.counts));
    if (!old || old.owners.length !== table.owners.length) {
      this.moved.clear();
      this.tell("table");
      this.tell("change");
      return;
    }
    const moves = [];
    table.owners.forEach((to, partition) => {
      const from = old.owners[partition];
      if (from !== to) moves.push({ partition, from, to });
    });
    this.#noteMoves(moves);
    this.#moves(moves);
    this.tell("change");
  }

  // apply takes a batch of events.
  apply(batch) {
    if (!this.table || !this.#known) return; // all of it is yet to be fetched
    const moves = batch.moved.filter((m) => this.table.owners[m.partition] === m.from);
    for (const m of moves) {
      this.table.owners[m.partition] = m.to;
      this.counts.set(m.from, (this.counts.get(m.from) || 0) - 1);
      this.counts.set(m.to, (this.counts.get(m.to) || 0) + 1);
    }
    const joined = new Set(batch.joined), left = new Set(batch.left);
    const rest = new Set(moves);
    const because = (id, kind, what, side) => {
      const own = moves.filter((m) => m[side] === id);
      own.forEach((m) => rest.delete(m));
      this.note(kind, own.length ? `${id} ${what}: ${tellMoves(own)}` : `${id} ${what}`, id);
    };
    for (const id of left) {
      if (!joined.has(id)) because(id, "left", "left", "from");
      this.#known.delete(id);
      if (!this.counts.get(id)) this.counts.delete(id);
    }
    for (const id of joined) {
      because(id, "joined", left.has(id) ? "restarted" : "joined", "to");
      this.#known.add(id);
    }
    this.members = this.members.filter((m) => this.#known.has(m.id));
    this.#noteMoves([...rest]);
    this.#moves(moves);
    this.tell("change");
  }

  #moves(moves) {
    if (moves.length === 0) return;
    const at = Date.now();
    for (const { partition, from } of moves) this.moved.set(partition, { from, at });
    this.tell("moves", moves.map((m) => m.partition));
  }

  #noteMoves(moves) {
    if (moves.length) this.note("moved", tellMoves(moves, true));
  }

  note(kind, text, id = "") {
    const entry = { at: new Date(), kind, text, id };
    this.log.unshift(entry);
    this.log.length = Math.min(this.log.length, logged);
    this.tell("log", entry);
  }
}

// tellMoves puts moves into words; all tells both ends, where one is not clear
// from what goes before.
function tellMoves(moves, all = false) {
  const ends = (side) => [...new Set(moves.map((m) => m[side]))];
  const name = (ids) => ids.length === 1 ? ids[0] || "nobody" : plural(ids.length, "node");
  const what = `${plural(moves.length, "partition")} moved`;
  const [from, to] = [ends("from"), ends("to")];
  if (all) return `${what} from ${name(from)} to ${name(to)}`;
  return to.length === 1 && from.length > 1 ? `${what} from ${name(from)}` : `${what} to ${name(to)}`;
}
