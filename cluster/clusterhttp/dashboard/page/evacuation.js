// How far this node is emptied of its rooms, while it drains.

import { $, attribute, plural, say } from "./dom.js";

export class Evacuation {
  constructor(model) {
    model.listen((kind) => {
      const drains = model.members.find((m) => m.id === model.self)?.state === "draining";
      if (kind === "change") this.#render(drains ? model.stats?.evacuation : null);
    });
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
