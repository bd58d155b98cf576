// The state of the connection: the mark at the top, and the notices for a page without
// current data.

import { $, attribute, h, say, span } from "./dom.js";

const texts = { live: "live", poll: "every second", wait: "connecting", lost: "not connected" };

export class LinkState {
  #model;

  constructor(model) {
    this.#model = model;
    say($("waiting-command"), `roost doctor --addr ${location.host}`);
    model.listen((kind) => {
      if (kind === "link") this.#render();
    });
    setInterval(() => this.#render(), 1000);
  }

  #render() {
    const { answered, problem, front, streaming } = this.#model;
    const state = !answered ? "wait" : problem ? "lost" : streaming ? "live" : "poll";
    attribute($("link"), "data-state", state);
    attribute(document.body, "data-link", state);
    say($("link-text"), texts[state]);
    attribute($("link"), "title", state === "poll" ? `${front ? "no event stream" : "another window has the event stream"}: this page polls every second` : null);
    $("waiting").hidden = state !== "wait" || !problem;
    if (!$("waiting").hidden) say($("waiting-why"), `The node reports: ${problem}.`);
    this.#notice(state === "lost");
  }

  // notice shows that the data is outdated. Screen readers announce only its first part:
  // the second part changes every second.
  #notice(lost) {
    const { answered, problem, retry } = this.#model;
    const notice = $("stale");
    notice.hidden = !lost;
    if (!lost) {
      notice.replaceChildren();
      return;
    }
    if (!notice.firstChild) notice.append(h("span", { role: "alert" }), h("span", { "aria-hidden": "true" }));
    const [what, when] = notice.children;
    say(what, `Not connected: ${problem}. The data below is outdated. `);
    const since = Math.round((Date.now() - answered) / 1000);
    say(when, `Since ${since < 60 ? `${since} s` : span(1000 * since)}; retry in ${Math.max(0, Math.ceil((retry - Date.now()) / 1000))} s.`);
  }
}
