// The log of changes, and its announcements for screen readers.

import { $, clock, h, plural, say } from "./dom.js";

const shown = 200;
const quiet = 4000; // ms between two announcements: more would be too many to follow
const signs = { joined: "+", left: "−", moved: "⇄", info: "i", warn: "!" };

export class EventLog {
  #unsaid = []; // texts to announce
  #pending = false;

  constructor(model) {
    model.listen((kind, entry) => {
      if (kind === "log") this.#add(entry);
    });
    $("events").append(h("li", { class: "none", text: "No changes since this page was opened." }));
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

  // announce announces new entries, or only their number.
  #announce() {
    const said = this.#unsaid.splice(0);
    this.#pending = said.length > 0;
    if (!this.#pending) return;
    say($("events-said"), said.length > 3 ? `${plural(said.length, "event")}, the last: ${said.at(-1)}` : said.join(". "));
    setTimeout(() => this.#announce(), quiet);
  }
}
