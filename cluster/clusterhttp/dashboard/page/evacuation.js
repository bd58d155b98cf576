// How far this node is emptied of its rooms, while it drains.

import { get } from "./api.js";
import { $, attribute, plural, say } from "./dom.js";

const every = 1000; // ms

export class Evacuation {
  #model;

  constructor(model) { this.#model = model; }

  async start() {
    for (;;) {
      const { members, self } = this.#model;
      const drains = members.find((m) => m.id === self)?.state === "draining";
      // Without an answer the page keeps what it shows, and has a notice that it is outdated.
      const now = drains ? await get("v1/stats").then((stats) => stats.evacuation, () => undefined) : null;
      if (now !== undefined || !drains) this.#render(now);
      await new Promise((done) => setTimeout(done, every));
    }
  }

  #render(e) {
    $("evacuation").hidden = !e;
    if (!e) {
      say($("evacuation-said"), "");
      return;
    }
    const gone = e.moved + e.ended;
    attribute($("evacuated"), "max", String(Math.max(1, gone + e.left)));
    attribute($("evacuated"), "value", String(e.over && !e.left ? Math.max(1, gone) : gone));
    const parts = [`${e.left} left`, `${e.moved} moved`];
    if (e.ended) parts.push(`${e.ended} ended`);
    if (e.failed) parts.push(`${e.failed} cannot move`);
    say($("evacuation-note"), parts.join(", "));
    say($("evacuation-why"), e.error || (e.failed ? e.why : "") || "");
    say($("evacuation-said"), !e.over ? "" : e.left ? `The evacuation has ended with ${plural(e.left, "room")} left` : "All rooms have left this node");
  }
}
