// The buttons of roost demo, whose process starts and stops the nodes.

import { get, post } from "./api.js";
import { $, h, say } from "./dom.js";

const every = 1000; // ms

export class Demo {
  #nodes = "";
  #busy = new Set();

  async start() {
    $("demo-add").addEventListener("click", () => this.#do("add", ""));
    for (;;) {
      await this.#refresh();
      await new Promise((done) => setTimeout(done, every));
    }
  }

  async #refresh() {
    try {
      this.#render(await get("demo"));
    } catch {
      $("demo").hidden = true;
    }
  }

  #render({ nodes, most, touring }) {
    $("demo").hidden = false;
    $("demo-add").disabled = touring || this.#busy.has("") || nodes.length >= most;
    const now = JSON.stringify([nodes, touring, [...this.#busy]]);
    if (now === this.#nodes) return; // or the button that has the focus would lose it
    this.#nodes = now;
    $("demo-note").hidden = !touring;
    const focused = document.activeElement?.dataset.button;
    $("demo-nodes").replaceChildren(...nodes.map((n) => h("li", {}, h("strong", { text: n.id }), h("span", { class: "note", text: n.state }),
      ...actions(n.state).map(([action, text]) => h("button", {
        type: "button", "aria-label": `${text} ${n.id}`, "data-button": `${action} ${n.id}`, disabled: this.#busy.has(n.id), text,
        onclick: () => this.#do(action, n.id),
      })))));
    [...$("demo-nodes").querySelectorAll("button")].find((b) => b.dataset.button === focused)?.focus();
  }

  async #do(action, id) {
    this.#busy.add(id);
    say($("demo-result"), "");
    await this.#refresh();
    try {
      await post(`demo/${action}`, id ? { id } : {});
    } catch (e) {
      say($("demo-result"), e.message);
    }
    this.#busy.delete(id);
    await this.#refresh();
  }
}

function actions(state) {
  switch (state) {
    case "running": return [["drain", "Drain"], ["pause", "Pause"], ["kill", "Kill"]];
    case "draining": return [["undrain", "Undrain"], ["pause", "Pause"], ["kill", "Kill"]];
    case "paused": return [["resume", "Resume"], ["kill", "Kill"]];
    default: return [];
  }
}
