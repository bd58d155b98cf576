// The tabs of the middle: one panel is visible.

import { $ } from "./dom.js";
import { rove } from "./roving.js";

export class Tabs {
  #shown; // called with the panel that is visible now

  constructor(shown) {
    this.#shown = shown;
    rove($("tabs"), "[role=tab]")();
    $("tabs").addEventListener("focusin", (e) => this.show(e.target));
    $("tabs").addEventListener("click", (e) => {
      const tab = e.target.closest("[role=tab]");
      if (tab) this.show(tab);
    });
  }

  show(tab) {
    if (tab.ariaSelected === "true") return;
    for (const other of $("tabs").children) {
      const chosen = other === tab;
      other.ariaSelected = String(chosen);
      other.tabIndex = chosen ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    this.#shown(tab.getAttribute("aria-controls"));
  }
}
