// The findings of roost doctor, which the agent makes itself, with what to do.

import { get } from "./api.js";
import { $, attribute, h, plural, say } from "./dom.js";

const first = "200ms", then = "2s"; // between the two looks of the agent, which keep a connection of the browser
const soon = "1s"; // after a change: for less than that, tables may differ while it spreads
const rest = 1000; // ms between two examinations
const hidden = 10_000; // ms between two of a hidden page, which has short ones, as all pages but one
const kept = 10_000; // ms for which a finding stays after its end: otherwise the page would jump
const opened = 2; // of the worst findings, with what to do
const signs = { fail: "✕", warn: "!", ok: "✓" };

export class Health {
  #title = document.title;
  #found = new Map(); // key → { check, seen, at } of findings: when, and where among the checks, it was last seen
  #items = new Map(); // key → element
  #said = "";
  #checked = Date.now(); // when the latest answer came
  #signs = ""; // of a problem, in the model
  #hurried = false; // a short examination runs
  #model;

  constructor(model) {
    this.#model = model;
    model.listen((kind) => {
      if (kind === "change" && signsOf(model) !== this.#signs) this.#hurry();
    });
  }

  async start() {
    for (let over = first; ; over = this.#model.front ? then : first) {
      await this.#examine(over);
      await this.#pause();
    }
  }

  // pause ends early when the page is shown.
  #pause() {
    return new Promise((done) => {
      setTimeout(done, document.hidden ? hidden : rest);
      if (document.hidden) document.addEventListener("visibilitychange", done, { once: true });
    });
  }

  // hurry has a short examination beside the long ones: the strip must not be green beside a lost member.
  async #hurry() {
    if (this.#hurried || document.hidden) return;
    this.#hurried = true;
    for (let signs; (signs = signsOf(this.#model)) !== this.#signs;) {
      if (await this.#examine(soon)) this.#signs = signs;
      else await new Promise((done) => setTimeout(done, rest));
    }
    this.#hurried = false;
  }

  // examine returns false if the agent has no place for it now.
  async #examine(over) {
    try {
      this.#render(await get(`v1/doctor?over=${over}`, 8000));
      this.#checked = Date.now();
    } catch (e) {
      if (this.#model.problem || Date.now() - this.#checked > kept) this.#doubt(e);
      return e.code !== "busy";
    }
    return true;
  }

  // doubt says that what the strip and the title show is old.
  #doubt(e) {
    document.title = `(?) ${this.#title}`;
    attribute($("health"), "data-level", "warn");
    say($("health-sign"), signs.warn);
    say($("health-sum"), `Not checked for ${Math.round((Date.now() - this.#checked) / 1000)} s: ${e.message}`);
  }

  #render({ checks }) {
    const now = Date.now();
    // Numbers in a finding change; what it means does not.
    checks.forEach((check, at) => {
      if (check.status !== "ok") this.#found.set(`${check.name} ${check.means}`, { check, seen: now, at });
    });
    for (const [key, { seen }] of this.#found) if (now - seen > kept) this.#found.delete(key);
    const found = [...this.#found].map(([key, { check, seen, at }]) => ({ key, check, at, over: seen < now })).sort((a, b) => a.over - b.over || a.at - b.at);
    const present = found.filter((f) => !f.over);
    const worst = present[0]?.check.status ?? "ok";
    attribute($("health"), "data-level", { ok: "good", warn: "warn", fail: "bad" }[worst]);
    say($("health-sign"), signs[worst]);
    say($("health-sum"), present.length ? sum(present) : `All ${checks.length} checks pass`);
    document.title = `${present.length ? `(${present.length}) ` : ""}${this.#title}`;
    this.#list(found);
    const passed = checks.filter((c) => c.status === "ok");
    say($("health-passed-title"), present.length ? `${plural(passed.length, "check passes", "checks pass")}` : "Show them");
    const rows = passed.map((c) => `${c.name}: ${c.finding}`);
    const list = $("health-passed");
    while (list.children.length > rows.length) list.lastChild.remove();
    rows.forEach((text, i) => say(list.children[i] ?? list.appendChild(h("li")), text));
    const keys = present.map((f) => f.key).join();
    if (keys !== this.#said) say($("health-said"), present.length ? `${sum(present)}: ${present.map((f) => f.check.name).join(", ")}` : "All checks pass");
    this.#said = keys;
  }

  #list(found) {
    for (const [key, item] of this.#items) {
      if (found.some((f) => f.key === key)) continue;
      item.remove();
      this.#items.delete(key);
    }
    found.forEach(({ key, check, over }, i) => {
      const item = this.#items.get(key) ?? this.#item(key, i < opened);
      const [status, name, text] = item.querySelectorAll("summary > span");
      attribute(item, "data-level", over ? "over" : check.status === "fail" ? "bad" : "warn");
      say(status, over ? "was" : check.status);
      say(name, check.name);
      say(text, check.finding);
      const [means, what] = item.querySelectorAll("dd");
      say(means, check.means ?? "");
      say(what, check.do ?? "");
      if ($("health-found").children[i] !== item) $("health-found").insertBefore(item, $("health-found").children[i] ?? null);
    });
  }

  #item(key, open) {
    const item = h("li", {}, h("details", { open },
      h("summary", {}, h("span", { class: "status" }), h("span", { class: "check" }), h("span", { class: "finding" })),
      h("dl", {}, h("dt", { text: "Means" }), h("dd"), h("dt", { text: "Do" }), h("dd", { class: "fix" }))));
    this.#items.set(key, item);
    return item;
  }
}

// signsOf returns what changes in a model when the findings do, for most problems.
function signsOf({ members, lost, ahead, alone, ttl, stats }) {
  const late = members.filter((m) => m.state !== "active" || m.age_ms > ttl * 2 / 3);
  return JSON.stringify([late.map((m) => [m.id, m.state]), lost.map((l) => [l.id, l.reason]), ahead.map((a) => a.id), alone, stats?.state, stats?.holds?.map((h) => h.cause), stats?.rooms?.store_doubt, stats?.rooms?.refused, stats?.rooms?.cut_off, stats?.rooms?.silent, stats?.rooms?.store_problem]);
}

function sum(found) {
  const n = (status) => found.filter((f) => f.check.status === status).length;
  return [n("fail") && plural(n("fail"), "failure"), n("warn") && plural(n("warn"), "warning")].filter(Boolean).join(", ");
}
