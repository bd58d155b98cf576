// The figures at the top.

import { $, attribute, count, eachFrame, percent, plural, say } from "./dom.js";
import { colorOf } from "./palette.js";

const svg = "http://www.w3.org/2000/svg";
const target = 0.1, warning = 0.15; // of the coefficient of variation

export class Summary {
  #model;

  constructor(model) {
    this.#model = model;
    const render = eachFrame(() => this.#render());
    model.listen((kind) => {
      if (kind === "change") render();
    });
  }

  #render() {
    const { members, table, drift, self } = this.#model;
    say($("self"), self || "…");
    say($("members-count"), count(members.length));
    const states = new Map();
    for (const m of members) states.set(m.state, (states.get(m.state) || 0) + 1);
    const lost = this.#model.lost.filter((l) => l.reason !== "left").length;
    const parts = states.size === 1 && states.has("active") ? ["all active"] : [...states].map(([state, n]) => `${n} ${state}`);
    say($("members-note"), (lost ? [...parts, `${lost} lost`] : parts).join(", "));
    attribute($("members-note"), "data-level", lost ? "bad" : null);
    say($("drift"), count(drift));
    say($("drift-note"), drift ? `${plural(drift, "member has", "members have")} another table than this node` : "all members have this table");
    attribute($("drift"), "data-level", drift ? "warn" : "good");
    if (!table) return;
    const owning = [...this.#model.counts.values()].filter((n) => n > 0).length;
    say($("partitions-count"), count(table.owners.length));
    say($("partitions-note"), owning ? `on ${plural(owning, "node")}, by ${table.strategy}` : "without an owner");
    attribute($("partitions-count"), "data-level", owning ? null : "bad");
    say($("table-version"), `v${count(table.version)}`);
    say($("table-digest"), table.digest);
    this.#balance(table);
  }

  #balance({ balance, nodes }) {
    const none = nodes.length === 0;
    const advice = none ? "No member can own partitions: all are draining, settling or of weight 0. Undrain a node, or set its weight."
      : balance.advice && `Balance: ${balance.advice}`;
    $("advice").hidden = !advice;
    say($("advice"), advice || "");
    $("advice").className = none ? "notice bad" : "notice warn";
    this.#bars(nodes);
    if (none) {
      say($("cv"), "–");
      attribute($("cv"), "data-level", null);
      say($("cv-note"), "no partitions to spread");
      return;
    }
    const level = balance.cv > warning ? "bad" : balance.cv > target ? "warn" : "good";
    say($("cv"), percent(balance.cv));
    attribute($("cv"), "data-level", level);
    const verdict = { good: "even", warn: "acceptable, the target is 10 %", bad: "uneven: above 15 %" }[level];
    say($("cv-note"), `deviation: ${verdict}. The fullest node has ${balance.max_mean.toFixed(2)} × its fair share`);
  }

  // bars draws each node's partitions against its fair share, which the line marks.
  #bars(nodes) {
    const total = nodes.reduce((sum, n) => sum + n.weight, 0);
    const all = this.#model.table.owners.length;
    const loads = nodes.map((n) => ({ id: n.id, load: (this.#model.counts.get(n.id) || 0) / ((all * n.weight) / total) }))
      .sort((a, b) => b.load - a.load);
    const top = Math.max(1.25, loads[0]?.load ?? 0);
    const chart = document.createElementNS(svg, "svg");
    const draw = (name, attributes) => {
      const e = document.createElementNS(svg, name);
      for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
      chart.append(e);
    };
    for (const [k, v] of Object.entries({ viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img",
      "aria-label": `Partitions of each node against its fair share: from ${(loads.at(-1)?.load ?? 0).toFixed(2)} to ${(loads[0]?.load ?? 0).toFixed(2)} times` })) chart.setAttribute(k, v);
    const width = Math.min(12, 100 / Math.max(1, loads.length));
    loads.forEach(({ id, load }, i) => {
      const height = (40 * load) / top;
      draw("rect", { x: i * width, y: 40 - height, width: width * 0.8, height, fill: colorOf(id) });
    });
    const fair = 40 - 40 / top;
    draw("line", { x1: 0, x2: width * loads.length, y1: fair, y2: fair, class: "fair" });
    $("bars").replaceChildren(chart);
  }
}
