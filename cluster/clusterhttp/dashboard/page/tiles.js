// The numbers at the top. Each answers a question.

import { $, ago, attribute, count, eachFrame, percent, plural, say, span } from "./dom.js";
import { sentence } from "./events.js";
import { late, state } from "./members.js";
import { spark } from "./spark.js";

const cause = 3000; // ms, within which partitions move after their cause

export class Tiles {
  #model;

  constructor(model) {
    this.#model = model;
    const render = eachFrame(() => this.#render());
    model.listen((kind) => {
      if (kind === "change") render();
    });
  }

  #render() {
    say($("self"), this.#model.self || "…");
    this.#members();
    this.#agreement();
    this.#lease();
    this.#load();
    this.#store();
    this.#change();
  }

  #members() {
    const { members, lost, history } = this.#model;
    const gone = lost.filter((l) => l.reason !== "left").length;
    const states = new Map();
    for (const m of members) states.set(state(m).word, [...(states.get(state(m).word) ?? []), m.id]);
    const active = states.get("active")?.length ?? 0;
    states.delete("active");
    const parts = !gone && !states.size ? ["all active"] : [
      gone && `${count(gone)} lost`, active && `${count(active)} active`,
      ...[...states].map(([word, ids]) => `${ids.length === 1 ? ids[0] : count(ids.length)} ${word}`),
    ];
    tile("members", {
      number: gone ? `${count(members.length)} of ${count(members.length + gone)}` : count(members.length),
      note: parts.filter(Boolean).join(", "), level: gone > members.length ? "bad" : gone ? "warn" : "",
    });
    spark("members-spark", history, "members", "Members");
  }

  #agreement() {
    const { members, lost, table, counts, divergence, stale } = this.#model;
    const gone = lost.some((l) => l.reason !== "left"); // and can have another table, if the network is split
    const owning = [...counts.values()].some((n) => n > 0);
    if (!table) {
      tile("agreement", { number: "–", note: "no table yet", level: "warn" });
      return;
    }
    const version = `table v${count(table.version)}, ${table.digest.slice(0, 8)}`;
    tile("agreement", stale ? { number: "Not known", note: "isolated, fenced or stalled: this is the last table", level: "warn" } : !owning
      ? { number: "No owner", note: "no member may own partitions", level: "bad" }
      : divergence ? { number: `${count(members.length - divergence)} of ${count(members.length)}`, note: `${plural(divergence, "member has", "members have")} another table than this node`, level: "warn" }
        : { number: members.length === 1 ? "Alone" : gone ? `${count(members.length)} agree` : "All agree", note: version, level: gone ? "" : "good" });
    attribute($("agreement-note"), "title", `the digest of the table is ${table.digest}`);
  }

  #lease() {
    const { members, ttl, self } = this.#model;
    const others = members.filter((m) => m.id !== self);
    const oldest = others.reduce((a, b) => (a?.age_ms >= b.age_ms ? a : b), null);
    const { share, level } = oldest ? late(oldest, this.#model) : { share: 0, level: "" };
    tile("lease", oldest ? { number: span(oldest.age_ms), note: `of ${span(ttl)}: ${oldest.id}`, level } : { number: "–", note: "no other member" });
    attribute($("lease-bar"), "data-level", level || null);
    $("lease-bar").style.setProperty("--share", Math.min(1, share).toFixed(3));
  }

  #load() {
    const { members, stats, history } = this.#model;
    const able = members.filter((m) => m.capacity > 0);
    const all = able.reduce((sum, m) => sum + m.capacity, 0);
    const used = able.reduce((sum, m) => sum + m.load, 0);
    const total = members.reduce((sum, m) => sum + m.load, 0);
    const fullest = able.reduce((a, b) => (!a || b.load / b.capacity > a.load / a.capacity ? b : a), null);
    const share = fullest ? fullest.load / fullest.capacity : 0;
    const rooms = stats?.rooms ? `${plural(stats.rooms.hosted, "room")} hosted here` : "";
    tile("load", { number: all ? percent(used / all, 0) : total ? count(total) : "–", note: rooms });
    say($("load-fullest"), fullest ? `fullest: ${fullest.id}, ${percent(share, 0)}` : total ? `${count(total)} units, no capacity stated` : "no load reported");
    attribute($("load-fullest"), "data-level", share > 1 ? "bad" : share > 0.8 ? "warn" : null);
    spark("load-spark", history, "load", "Load of this node");
  }

  #store() {
    const rooms = this.#model.stats?.rooms;
    if (!rooms) {
      tile("store", { number: "–", note: "this agent pins no rooms" });
      return;
    }
    const calls = rooms.store_calls ? `${(rooms.store_ns / rooms.store_calls / 1e6).toFixed(1)} ms a call` : "no call yet";
    tile("store", rooms.refused ? { number: "Refused", note: "other nodes have other settings", level: "bad" }
      : rooms.store_doubt ? { number: "No answer", note: `none lately; circuit breaker ${rooms.breaker}`, level: "bad" }
        : { number: "Up", note: `${calls}; ${plural(rooms.store_errors, "error")} since start`, level: "good" });
  }

  #change() {
    const { history } = this.#model;
    const events = history?.events ?? [], time = events.at(-1)?.at;
    const first = events.findLast((e) => e.kind !== "moved" && Date.parse(time) - Date.parse(e.at) < cause) ?? events.at(-1);
    const like = events.filter((e) => e.at === first.at && e.kind === first.kind && e.reason === first.reason).length;
    tile("change", !first ? { number: "–", note: "nothing since this agent was started" } : {
      number: ago(Date.parse(history.now) - Date.parse(time) + this.#model.age),
      note: sentence(like > 1 ? { kind: first.kind, reason: first.reason, members: like } : first),
    });
    spark("change-spark", history, "moved", "Moved per 10 s");
  }
}

function tile(id, { number, note, level }) {
  say($(`${id}-number`), number);
  attribute($(`${id}-number`), "data-level", level || null);
  say($(`${id}-note`), note);
  attribute($(`${id}-note`), "title", note);
}
