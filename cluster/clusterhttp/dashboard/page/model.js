// What is known of the cluster, and what of its changes is worth an entry in the log.
// Nothing here touches the page.

import { plural } from "./dom.js";

const lasting = 5000; // ms, of a drift that is worth an entry

export class Model {
  self = "";
  members = []; // as /v1/members has them
  drift = 0;
  table = null; // as /v1/partitions has it; owners follow the events at once
  counts = new Map(); // partitions by node
  moved = new Map(); // partition → { from, at } of its last move
  focus = ""; // the node that is shown alone

  // The connection.
  streaming = false;
  answered = 0; // ms, when the agent was last heard of
  fault = ""; // why it is not heard of now; "" while it is
  retry = 0; // ms, when it is asked again

  ttl = 6000;
  #life = ""; // of the agent: versions of another one cannot be compared
  #version = 0; // up to which all changes are known
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

  // setMembers takes what /v1/members says. An answer that an event has overtaken
  // still has the latest figures, but who is live is known better.
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
    for (const member of this.members) this.#compare(before.get(member.id), member);
    this.tell("change");
  }

  #setLive(m) {
    if (this.self && m.self !== this.self) this.note("info", `now seen from ${m.self}`);
    const live = new Set(m.members.map((member) => member.id));
    for (const id of this.#known ?? []) if (!live.has(id)) this.note("left", `${id} left`);
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
    // After a change everybody runs another table for a moment.
    const since = this.#apart.get(id);
    if (member.in_sync) this.#apart.delete(id);
    else if (since === undefined) this.#apart.set(id, Date.now());
    else if (since && Date.now() - since > lasting) {
      this.#apart.set(id, 0); // it was told
      this.note("warn", `${id} runs another table, and has for some seconds`);
    }
  }

  // setTable takes what /v1/partitions says, unless an event has overtaken it. What
  // it has and no event told of has happened while there were no events.
  setTable(table) {
    if (table.version < this.#version) return false;
    const old = this.table;
    this.table = table;
    this.counts = new Map(Object.entries(table.counts));
    if (!old || old.owners.length !== table.owners.length) {
      this.moved.clear();
      this.tell("table");
    } else {
      const moves = [];
      table.owners.forEach((to, partition) => {
        const from = old.owners[partition];
        if (from !== to) moves.push({ partition, from, to });
      });
      this.#noteMoves(moves);
      this.#moves(moves);
    }
    this.tell("change");
    return true;
  }

  // apply takes a batch of events. What a full one does not tell, such as who left
  // while there were no events, the next answers do; so they do in another life of the
  // agent, whose versions are lower at first.
  apply(batch) {
    if (batch.version <= this.#version || !this.table) return;
    this.#version = batch.version;
    const moves = batch.moved.filter((m) => this.table.owners[m.partition] === m.from);
    for (const { partition, from, to } of moves) {
      this.table.owners[partition] = to;
      this.#count(from, -1);
      this.#count(to, +1);
    }
    this.#tellLives(batch, moves);
    this.members = this.members.filter((m) => this.#known.has(m.id));
    this.#moves(moves);
    this.tell("change");
  }

  #count(id, more) {
    if (id) this.counts.set(id, (this.counts.get(id) ?? 0) + more); // and not nobody's
  }

  // tellLives makes entries of who left and who joined, each with the moves that come
  // of it, and one of the other moves. An answer may have told of some before.
  #tellLives(batch, moves) {
    const joined = new Set(batch.joined), left = new Set(batch.left);
    const rest = new Set(moves);
    const because = (id, kind, what, side) => {
      const own = moves.filter((m) => m[side] === id);
      own.forEach((m) => rest.delete(m));
      this.note(kind, own.length ? `${id} ${what}: ${tellMoves(own)}` : `${id} ${what}`);
    };
    for (const id of left) {
      if (!joined.has(id) && this.#known.has(id)) because(id, "left", "left", "from");
      this.#known.delete(id);
      if (!this.counts.get(id)) this.counts.delete(id);
    }
    for (const id of joined) {
      if (!this.#known.has(id)) because(id, "joined", left.has(id) ? "restarted" : "joined", "to");
      this.#known.add(id);
    }
    for (const m of this.members) if (joined.has(m.id)) m.incarnation = ""; // of this life it was told
    this.#noteMoves([...rest]);
  }

  #moves(moves) {
    if (moves.length === 0) return;
    const at = Date.now();
    for (const { partition, from } of moves) this.moved.set(partition, { from, at });
    this.tell("moves", moves.map((m) => m.partition));
  }

  #noteMoves(moves) {
    if (moves.length) this.note(moves.some((m) => !m.to) ? "warn" : "moved", tellMoves(moves, true));
  }

  note(kind, text) { this.tell("log", { at: new Date(), kind, text }); }
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
