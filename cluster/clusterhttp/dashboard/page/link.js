// Whether what is seen is current: the mark at the top, and what is shown instead of
// the cluster or above it while it is not.

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
    const { answered, fault, streaming } = this.#model;
    const state = !answered ? "wait" : fault ? "lost" : streaming ? "live" : "poll";
    attribute($("link"), "data-state", state);
    attribute(document.body, "data-link", state);
    say($("link-text"), texts[state]);
    attribute($("link"), "title", state === "poll" ? "the event stream is not to be had, so this page asks every second" : null);
    $("waiting").hidden = state !== "wait" || !fault;
    if (!$("waiting").hidden) say($("waiting-why"), `It says: ${fault}.`);
    this.#notice(state === "lost");
  }

  // notice says that what is seen is old. Only its first part is read out: the other
  // one changes all the time.
  #notice(lost) {
    const { answered, fault, retry } = this.#model;
    const notice = $("stale");
    notice.hidden = !lost;
    if (!lost) {
      notice.replaceChildren();
      return;
    }
    if (!notice.firstChild) notice.append(h("span", { role: "alert" }), h("span", { "aria-hidden": "true" }));
    const [what, when] = notice.children;
    say(what, `Not connected: ${fault}. What you see is old. `);
    const since = Math.round((Date.now() - answered) / 1000);
    say(when, `Since ${since < 60 ? `${since} s` : span(1000 * since)}; asking again in ${Math.max(0, Math.ceil((retry - Date.now()) / 1000))} s.`);
  }
}
