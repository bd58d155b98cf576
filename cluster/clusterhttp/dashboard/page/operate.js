// Changes to the node that serves this page: drain, undrain, weight. Each needs a
// confirmation.

import { post, Refused, useToken } from "./api.js";
import { $, attribute, eachFrame, plural, say } from "./dom.js";
import { state } from "./members.js";

export class Operate {
  #model;
  #changed; // called after a change

  constructor(model, changed) {
    this.#model = model;
    this.#changed = changed;
    const render = eachFrame(() => this.#render());
    model.listen((kind) => {
      if (kind === "change") render();
    });
    $("drain").addEventListener("click", () => this.#drain());
    $("undrain").addEventListener("click", () => this.#undrain());
    $("weight").addEventListener("submit", (e) => {
      e.preventDefault();
      this.#weigh(Number($("weight-value").value));
    });
    $("token-form").addEventListener("submit", (e) => {
      e.preventDefault();
      useToken($("token").value);
      result("good", $("token").value ? "The token is sent from now on." : "No token is sent.");
    });
    $("token-forget").addEventListener("click", () => {
      $("token").value = "";
      useToken("");
      result("good", "The token is forgotten.");
    });
  }

  #self() { return this.#model.members.find((m) => m.id === this.#model.self); }

  #render() {
    const self = this.#self();
    say($("operate-note"), self ? `${self.id} is ${state(self).word}, weight ${self.weight}` : "");
    const focused = document.activeElement;
    const ordered = self?.state === "draining" && (this.#model.stats?.holds?.some(({ cause }) => cause === "draining") ?? true);
    $("drain").disabled = !self || self.state === "settling" || ordered;
    $("undrain").disabled = !ordered;
    if (focused === $("drain") && focused.disabled) $("undrain").focus(); // otherwise the focus is lost
    if (focused === $("undrain") && focused.disabled) $("drain").focus();
    const value = $("weight-value");
    if (self && document.activeElement !== value && value.dataset.was !== String(self.weight)) {
      value.value = value.dataset.was = String(self.weight);
    }
  }

  #drain() {
    const { self, counts, members } = this.#model;
    const others = members.filter((m) => m.id !== self && m.state === "active" && m.weight > 0).length;
    return this.#do({
      title: `Drain ${self}?`, yes: "Drain", path: "v1/drain", done: "drained",
      text: others
        ? `It releases its ${plural(counts.get(self) || 0, "partition")} to ${plural(others, "other node")}. It stays a member, and Undrain reverses the change.`
        : "No other node is active: partitions have no owner until it is undrained.",
    });
  }

  #undrain() {
    const { self } = this.#model;
    return this.#do({ title: `Undrain ${self}?`, yes: "Undrain", path: "v1/undrain", done: "undrained", text: "It gets its share of the partitions again." });
  }

  #weigh(weight) {
    const { self } = this.#model;
    const zero = weight === 0 ? " With weight 0 it owns nothing." : "";
    return this.#do({
      title: `Weight ${weight} for ${self}?`, yes: "Set the weight", path: "v1/weight", body: { weight }, done: `given weight ${weight}`,
      text: `It has ${this.#self()?.weight} now. Partitions move to it or from it in proportion.${zero}`,
    });
  }

  async #do({ title, text, yes, path, body, done }) {
    if (!(await confirmed(title, text, yes))) return;
    result("", "Request sent …");
    try {
      const answer = await post(path, body);
      result("good", `${answer.self} was ${done}${answer.converged ? "; all members agree." : "; the change is spreading to the other members."}`);
    } catch (e) {
      if (unauthorized(e)) askForToken();
      else result("bad", e.message);
    }
    this.#changed();
  }
}

export const unauthorized = (e) => e instanceof Refused && e.status === 401;

// askForToken leads to the field of the token, after an answer that it is missing or wrong.
export function askForToken() {
  result("bad", `${$("token").value ? "The agent rejects this token." : "This needs the operator's token."} Enter the token of the agent's --http-token-file, and try again.`);
  $("token-box").open = true;
  $("token").focus();
  $("token").select();
}

function result(level, text) {
  attribute($("operate-result"), "data-level", level || null);
  say($("operate-result"), text);
}

// confirmed asks a question, and reports whether the answer is yes.
export function confirmed(title, text, yes) {
  const dialog = $("confirm");
  say($("confirm-title"), title);
  say($("confirm-text"), text);
  say($("confirm-yes"), yes);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => {
    dialog.onclose = () => {
      if (!dialog.open) done(dialog.returnValue === "yes"); // otherwise it is a late event of the previous question
    };
  });
}
