// The log of what changed, and what of it is read out.

import { $, attribute, clock, h, plural, say } from "./dom.js";

const shown = 200;
const quiet = 4000; // ms between two announcements: more than that and nobody can listen
const signs = { joined: "+", left: "−", moved: "⇄", info: "i", warn: "!" };

export class EventLog {
  #unsaid = []; // texts that were not announced yet
  #pending = false;

  constructor(model) {
    model.listen((kind, entry) => {
      if (kind === "log") this.#add(entry);
    });
    $("events").append(h("li", { class: "none", text: "Nothing has changed since this page was opened." }));
  }

  #add(entry) {
    const list = $("events");
    list.querySelector(".none")?.remove();
    list.prepend(h("li", { "data-kind": entry.kind },
      h("span", { class: "sign", "aria-hidden": "true", text: signs[entry.kind] }),
      h("span", { class: "what", text: entry.text }),
      h("time", { datetime: entry.at.toISOString(), text: clock(entry.at) })));
    while (list.children.length > shown) list.lastChild.remove();
    say($("events-note"), list.children.length === shown ? `the last ${shown}` : "");
    this.#unsaid.push(entry.text);
    if (this.#pending) return;
    this.#pending = true;
    setTimeout(() => this.#announce(), quiet / 4);
  }

  // announce reads out what is new, or only how much that is.
  #announce() {
    const said = this.#unsaid.splice(0);
    this.#pending = said.length > 0;
    if (!this.#pending) return;
    say($("events-said"), said.length > 3 ? `${plural(said.length, "event")}, the last: ${said.at(-1)}` : said.join(". "));
    setTimeout(() => this.#announce(), quiet);
  }
}

// LinkState tells whether what is seen is current.
export class LinkState {
  #model;

  constructor(model) {
    this.#model = model;
    model.listen((kind) => {
      if (kind === "link") this.#render();
    });
    setInterval(() => this.#render(), 1000);
  }

  #render() {
    const { answered, fault, retry, streaming } = this.#model;
    const state = fault ? (answered ? "lost" : "wait") : streaming ? "live" : "poll";
    attribute($("link"), "data-state", state);
    attribute(document.body, "data-stale", fault && answered ? "yes" : null);
    const texts = { live: "live", poll: "every second", wait: "connecting", lost: "not connected" };
    say($("link-text"), texts[state]);
    attribute($("link"), "title", state === "poll" ? "the event stream is not to be had, so this page asks every second" : null);
    const notice = $("stale");
    notice.hidden = !fault;
    if (!fault) {
      notice.replaceChildren();
      return;
    }
    // Only the first part is read out: the other one changes all the time.
    if (!notice.firstChild) notice.append(h("span", { role: "alert" }), h("span", { "aria-hidden": "true" }));
    const [what, when] = notice.children;
    say(what, answered ? `Not connected: ${fault}. What you see is old. ` : `Waiting for the agent: ${fault}. `);
    const again = `asking again in ${Math.max(0, Math.ceil((retry - Date.now()) / 1000))} s`;
    say(when, answered ? `Since ${Math.round((Date.now() - answered) / 1000)} s; ${again}.` : `${again[0].toUpperCase()}${again.slice(1)}.`);
  }
}
