// The buttons of roost demo, which starts and stops the nodes.

import { get, post } from "./api.js";
import { $, h, say } from "./dom.js";

const every = 1000; // ms

export class Demo {
  #model;
  #stage = null; // the last GET demo
  #shown = ""; // the part on the page
  #busy = new Set();
  #focus = ""; // action and id of the focused button

  constructor(model) { this.#model = model; }

  async start() {
    $("demo-add").addEventListener("click", () => this.#do("add", ""));
    for (;;) {
      await this.#refresh();
      await new Promise((done) => setTimeout(done, every));
    }
  }

  async #refresh() {
    try {
      this.#stage = await get("demo");
      this.#render();
    } catch {
      $("demo").hidden = true;
    }
  }

  #render() {
    const { most, touring } = this.#stage;
    const nodes = this.#stage.nodes.map((n) => ({ id: n.id, state: this.#stateOf(n) }));
    $("demo").hidden = false;
    $("demo-add").disabled = touring || this.#busy.has("") || nodes.length >= most;
    const now = JSON.stringify([nodes, touring, [...this.#busy]]);
    if (now === this.#shown) return;
    this.#shown = now;
    $("demo-note").hidden = !touring;
    $("demo-rooms").hidden = touring;
    const at = document.activeElement;
    if (at !== document.body) this.#focus = at.dataset.button ?? "";
    $("demo-nodes").replaceChildren(...nodes.map((n) => h("li", {}, h("strong", { text: n.id }), h("span", { class: "note", text: n.state }),
      ...actions(n.state).map(([action, text]) => h("button", {
        type: "button", "aria-label": `${text} ${n.id}`, "data-button": `${action} ${n.id}`, disabled: this.#busy.has(n.id), text,
        onclick: () => this.#do(action, n.id),
      })))));
    this.#refocus();
  }

  // stateOf adds the state draining, which the demo does not report.
  #stateOf({ id, state }) {
    const member = this.#model.members.find((m) => m.id === id);
    return state === "running" && member?.state === "draining" ? "draining" : state;
  }

  // refocus focuses the previous button, or another one of its node: buttons are created
  // again, and are disabled during a call.
  #refocus() {
    const [, id] = this.#focus.split(" ");
    const own = [...$("demo-nodes").querySelectorAll("button:enabled")].filter((b) => b.dataset.button.split(" ")[1] === id);
    (own.find((b) => b.dataset.button === this.#focus) ?? own[0])?.focus();
  }

  async #do(action, id) {
    this.#busy.add(id);
    say($("demo-result"), "");
    this.#render();
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
