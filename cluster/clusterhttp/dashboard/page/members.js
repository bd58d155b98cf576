// The table of members.

import { $, attribute, byName, count, eachFrame, fill, h, paint, percent, plural, say, span } from "./dom.js";
import { colorOf } from "./palette.js";

const filterFrom = 9; // members; below there is no filter
const lostLines = 5;

const states = { active: "●", draining: "◐", settling: "○", left: "×" };

// A column has a name, a sort key, and a function show that returns text, level ("good",
// "warn", "bad" or none), share (of a bar, 0 to 1) and title.
const columns = [
  { key: "id", name: "Node", by: (m) => m.id },
  { key: "state", name: "State", by: (m) => m.state, show: (m) => ({ text: `${states[m.state] ?? ""} ${m.state}`, level: m.state === "active" ? "good" : "warn", title: versions(m) }) },
  { key: "zone", name: "Zone", by: (m) => m.zone, show: (m) => ({ text: m.zone || "–", title: m.zone || null }) },
  { key: "age", name: "Lease age", by: (m) => m.age_ms, show: lease },
  { key: "load", name: "Load", by: (m) => (m.capacity ? m.load / m.capacity : m.load), show: load },
  { key: "weight", name: "Weight", by: (m) => m.weight, show: weight },
  { key: "partitions", name: "Partitions", by: (m, model) => owned(m, model), show: partitions },
  { key: "clock", name: "Clock", by: (m) => Math.abs(m.clock_offset_ms), show: offset },
  { key: "sync", name: "Table", by: (m) => Number(!m.in_sync), show: (m) => (m.in_sync ? { text: "✓ same" } : { text: "≠ other", level: "warn" }) },
];

const compare = (a, b) => (typeof a === "number" ? a - b : byName(a, b));

const owned = (m, model) => model.counts.get(m.id) || 0;

function lease(m, model) {
  const share = m.age_ms / model.ttl;
  return {
    text: span(m.age_ms), share, level: share > 1 ? "bad" : share > 0.75 ? "warn" : "",
    title: `last heartbeat ${span(m.age_ms)} ago; the lease expires after ${span(model.ttl)}`,
  };
}

function versions(m) {
  return [m.version && `version ${m.version}`, m.roost && `roost ${m.roost}`].filter(Boolean).join(", ") || null;
}

function weight(m) {
  return m.weight ? { text: count(m.weight) } : { text: "0", level: "warn", title: "weight 0: owns no partitions" };
}

function load(m) {
  if (!m.capacity) return { text: count(m.load), title: "no capacity reported" };
  const share = m.load / m.capacity;
  return { text: `${count(m.load)} of ${count(m.capacity)}`, share, level: share > 1 ? "bad" : share > 0.8 ? "warn" : "", title: percent(share) };
}

function partitions(m, model) {
  if (!model.table) return { text: "–" };
  const n = owned(m, model), all = model.table.owners.length;
  const most = Math.max(1, ...model.counts.values());
  return { text: count(n), share: n / most, title: `${percent(n / all)} of ${count(all)}`, color: true };
}

function offset(m) {
  const ms = m.clock_offset_ms;
  return { text: ms === 0 ? "±0 ms" : `${ms > 0 ? "+" : "−"}${span(ms)}`, level: Math.abs(ms) > 1000 ? "warn" : "", title: "offset from this node's clock" };
}

export class MemberTable {
  #model;
  #rows = new Map(); // by id
  #sort = columns[0];
  #falling = false;

  constructor(model) {
    this.#model = model;
    $("members-head").append(...columns.map((c) => h("th", { role: "columnheader", scope: "col", "data-column": c.key },
      h("button", { type: "button", onclick: () => this.#sortBy(c) }, c.name))));
    fill($("members-sort"), columns.map((c) => [c.key, c.name]));
    $("members-sort").addEventListener("change", (e) => this.#sortBy(columns[e.target.selectedIndex]));
    const render = eachFrame(() => this.#render());
    $("members-filter").addEventListener("input", render);
    model.listen((kind) => {
      if (kind === "change") render();
    });
    this.#show();
  }

  // sortBy sorts by a column: names ascending, numbers descending. A second call reverses
  // the order.
  #sortBy(column) {
    this.#falling = this.#sort === column ? !this.#falling : !["id", "state", "zone"].includes(column.key);
    this.#sort = column;
    this.#show();
  }

  #show() {
    $("members-sort").value = this.#sort.key;
    for (const th of $("members-head").children) {
      attribute(th, "aria-sort", th.dataset.column !== this.#sort.key ? null : this.#falling ? "descending" : "ascending");
    }
    this.#render();
  }

  #render() {
    const { members } = this.#model;
    $("members-filter-label").hidden = members.length < filterFrom;
    const wanted = members.length < filterFrom ? "" : $("members-filter").value.trim().toLowerCase();
    const { by } = this.#sort;
    const shown = members
      .filter((m) => `${m.id} ${m.zone} ${m.state} ${m.addr}`.toLowerCase().includes(wanted))
      .sort((a, b) => (this.#falling ? -1 : 1) * compare(by(a, this.#model), by(b, this.#model)) || compare(a.id, b.id));
    const live = new Set(shown.map((m) => m.id));
    for (const [id, row] of this.#rows) {
      if (live.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    this.#renderLost();
    const body = $("members-body");
    shown.forEach((m, i) => {
      const row = this.#rows.get(m.id) ?? this.#row(m);
      this.#update(row, m);
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    });
  }

  // renderLost lists the members that have gone and did not come back, the latest first.
  #renderLost() {
    const { lost } = this.#model, list = $("lost");
    list.hidden = lost.length === 0;
    const lines = lost.slice(0, lostLines).map((l) => ({
      text: `${l.id} ${l.reason} ${span(l.ago_ms)} ago${l.partitions ? `, and owned ${plural(l.partitions, "partition")}` : ""}`,
      level: l.reason === "left" ? null : "bad",
      title: [l.addr && `gossiped at ${l.addr}`, l.api_addr && `program at ${l.api_addr}`].filter(Boolean).join("\n") || null,
    }));
    if (lost.length > lostLines) lines.push({ text: `and ${count(lost.length - lostLines)} more: roost members`, level: null, title: null });
    while (list.children.length > lines.length) list.lastChild.remove();
    lines.forEach(({ text, level, title }, i) => {
      const item = list.children[i] ?? list.appendChild(h("li"));
      say(item, text);
      attribute(item, "data-level", level);
      attribute(item, "title", title);
    });
  }

  #row(m) {
    const name = h("th", { role: "rowheader", scope: "row", class: "name" },
      h("button", { type: "button", title: "Show it alone on the map", onclick: () => this.#model.setFocus(m.id) },
        h("span", { class: "swatch", "aria-hidden": "true" }), h("span", { class: "id", text: m.id })),
      h("span", { class: "badge", text: "this node" }));
    const row = h("tr", { role: "row" }, name, ...columns.slice(1).map((c) =>
      h("td", { role: "cell", "data-label": c.name, class: c.key }, h("span", { class: "value" }))));
    paint(row, colorOf(m.id));
    this.#rows.set(m.id, row);
    return row;
  }

  #update(row, m) {
    const [name, ...cells] = row.children;
    attribute(name, "title", about(m));
    name.firstChild.setAttribute("aria-pressed", this.#model.focus === m.id);
    name.lastChild.hidden = m.id !== this.#model.self;
    columns.slice(1).forEach((c, i) => {
      const { text, level, share, title, color } = c.show(m, this.#model);
      const cell = cells[i];
      say(cell.firstChild, text);
      attribute(cell, "data-level", level || null);
      attribute(cell, "title", title);
      if (share === undefined) return;
      if (!cell.classList.contains("bar")) cell.classList.add("bar", ...(color ? ["own"] : []));
      cell.style.setProperty("--share", Math.min(1, share).toFixed(3));
    });
  }
}

// about has the other fields of a member.
function about(m) {
  const labels = Object.entries(m.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  return [m.id, `gossips at ${m.addr}`, m.api_addr && `program at ${m.api_addr}`, ...labels].filter(Boolean).join("\n");
}
