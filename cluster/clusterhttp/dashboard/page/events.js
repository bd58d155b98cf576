// What happened, by the agent's own history, and its announcements for screen readers.

import { $, clock, count, h, plural, say, span } from "./dom.js";
import { shorten } from "./more.js";

const shown = 200;
const quiet = 4000; // ms between two announcements: more would be too many to follow
const signs = { joined: "+", left: "−", moved: "⇄", info: "i", warn: "!" };

export class EventLog {
  #model;
  #known = null; // keys of the events so far; null: the first history has no news
  #unsaid = []; // texts to announce
  #pending = false;

  constructor(model) {
    this.#model = model;
    $("events").after(shorten($("events"), "events"));
    model.listen((kind) => {
      if (kind === "log") this.#render();
    });
  }

  #render() {
    const past = entriesOf(this.#model.history), all = past.slice(0, shown);
    $("events").replaceChildren(...all.map((e) => h("li", { "data-kind": e.kind },
      h("span", { class: "sign", "aria-hidden": "true", text: signs[e.kind] }),
      h("span", { class: "what", text: e.text }),
      h("time", { datetime: e.at.toISOString(), title: e.at.toString(), text: clock(e.at) }))));
    if (!all.length) $("events").append(h("li", { class: "none", text: "Nothing has happened since this agent was started." }));
    say($("events-note"), all.length === shown ? `the last ${shown}` : "");
    const news = this.#known ? all.filter((e) => !this.#known.has(e.key)) : [];
    this.#known = new Set(past.map((e) => e.key));
    this.#unsaid.push(...news.reverse().map((e) => e.text));
    if (this.#pending || !this.#unsaid.length) return;
    this.#pending = true;
    setTimeout(() => this.#announce(), quiet / 4);
  }

  // announce announces new entries, or only their number.
  #announce() {
    const said = this.#unsaid.splice(0);
    this.#pending = said.length > 0;
    if (!this.#pending) return;
    say($("events-said"), said.length > 3 ? `${plural(said.length, "event")}, the last: ${said.at(-1)}` : said.join(". "));
    setTimeout(() => this.#announce(), quiet);
  }
}

// entriesOf returns the events of a history in words, the newest first.
function entriesOf(history) {
  return (history?.events ?? []).map((e) => ({
    at: new Date(e.at), kind: kinds[e.kind] ?? "info", text: sentence(e), key: [e.at, e.kind, e.member, e.reason].join(" "),
  })).reverse();
}

const kinds = {
  ready: "joined", joined: "joined", returned: "joined", uncordoned: "joined", undrained: "joined",
  lost: "left", fenced: "left", isolated: "left", stopped: "left", draining: "warn", cordoned: "warn", moved: "moved",
  "store-away": "left", "store-back": "joined", "data-lost": "left", conflict: "warn", "rooms-moved": "moved",
};

// here returns what an event about partitions means for this node.
function here({ gained = 0, lost = 0 }) {
  if (gained + lost === 0) return "none here";
  return `here +${count(gained)} −${count(lost)}`;
}

export function sentence(e) {
  const who = e.member || plural(e.members ?? 0, "member");
  const are = e.member ? "is" : "are", its = e.member ? "its" : "their";
  const owned = e.partitions ? `${plural(e.partitions, "partition")}` : "";
  const because = e.why ? `: ${e.why}` : "";
  const rooms = plural(e.rooms ?? 0, "room");
  switch (e.kind) {
    case "started": return `the agent of ${who} started`;
    case "ready": return `${who} ${e.member ? "takes" : "take"} part${e.member && e.members ? `, with ${plural(e.members, "member")}` : ""}`;
    case "fenced": return `${who} gave up ${owned ? `${its} ${owned}` : "all"}${because}`;
    case "isolated": return `${who} ${are} isolated, and gave up ${owned ? `${its} ${owned}` : "all"}${because}`;
    case "stopped": return `the agent of ${who} stopped: ${e.reason}`;
    case "joined": return `${who} joined`;
    case "returned": return e.reason ? `${who} restarted: the process before ${e.reason === "replaced" ? "was replaced" : e.reason}` : `${who} ${are} back`;
    case "lost": return `${who} ${e.reason}${owned ? `; others own ${its} ${owned}` : ""}`;
    case "draining": return `${who} ${are} ${e.reason || "draining"}${because}`;
    case "undrained": return `${who} ${are} active again`;
    case "cordoned": return `${who} ${are} cordoned${because}`;
    case "uncordoned": return `${who} ${are} no longer cordoned`;
    case "weight": return e.member ? `${who} has weight ${count(e.weight ?? 0)}, was ${count(e.old_weight ?? 0)}` : `${who} have other weights`;
    case "moved": return `${plural(e.moved ?? 0, "partition")} moved, ${here(e)}`;
    case "store-away": return `the store does not answer${because}`;
    case "store-back": return `the store answers again, after ${span(e.lasted_ns / 1e6)}`;
    case "data-lost": return "the store lost pins of rooms that this node hosts";
    case "pins-restored": return `the pins of ${rooms} are restored`;
    case "conflict": return `${rooms} ${e.rooms === 1 ? "was" : "were"} hosted on two nodes, and stayed on ${who}`;
    case "rooms-moved": return `${rooms}${e.member ? ` of ${who}` : ""} moved: ${(e.reason ?? "").replace(/^moved /, "")}`;
    default: return [e.kind, who, e.reason, e.why].filter(Boolean).join(" ");
  }
}
