// The table of members, with the lost ones on top.

import { $, ago, attribute, byName, count, eachFrame, fill, h, paint, percent, plural, say, span } from "./dom.js";
import { shorten } from "./more.js";
import { colorOf } from "./palette.js";
import { rove } from "./roving.js";

const filterFrom = 9; // members and lost ones; below there is no filter
const goneRows = 8; // of members that have gone

const states = { active: "●", draining: "◐", settling: "○" };

// A column has a name, a sort key, and a function show that returns text, level ("good",
// "warn", "bad" or none), share (of a bar, 0 to 1) and title.
const columns = [
  { key: "id", name: "Node", by: (m) => m.id },
  { key: "state", name: "State", by: (m) => m.state, show: state },
  { key: "zone", name: "Zone", by: (m) => m.zone, show: (m) => ({ text: m.zone || "–", title: m.zone || null }) },
  { key: "age", name: "Lease age", by: (m) => m.age_ms ?? 0, show: lease },
  { key: "load", name: "Load", by: (m) => (m.capacity ? m.load / m.capacity : m.load), show: load },
  { key: "weight", name: "Weight", by: (m) => m.weight, show: weight },
  { key: "partitions", name: "Partitions", by: (m, model) => owned(m, model), show: partitions },
  { key: "clock", name: "Clock", by: (m) => Math.abs(m.clock_offset_ms), show: offset },
  { key: "sync", name: "Table", by: (m) => Number(!m.in_sync), show: (m) => (m.in_sync ? { text: "✓ same" } : { text: "≠ other", level: "warn" }) },
];

const compare = (a, b) => (typeof a === "number" ? a - b : byName(a, b));

export const owned = (m, model) => model.counts.get(m.id) || 0;

// late returns how much of its lease a member has used, as a share and a level: "warn" after a
// heartbeat that did not arrive, "bad" after the end.
export function late(m, model) {
  const share = (m.age_ms ?? 0) / model.ttl;
  return { share, level: share > 1 ? "bad" : m.age_ms > 1.5 * model.heartbeat ? "warn" : "" };
}

function lease(m, model) {
  if (!m.age_ms) return { text: "–" };
  return { text: span(m.age_ms), ...late(m, model), title: `last heartbeat ${span(m.age_ms)} ago; the lease expires after ${span(model.ttl)}` };
}

export function state(m) {
  const why = m.cordoned ? "cordoned" : m.unhealthy ? "unhealthy" : m.flapping_ms ? "flapping" : "";
  const word = why || m.state;
  return { word, text: `${states[m.state] ?? ""} ${word}`, level: m.state === "active" ? "good" : "warn", title: why ? `${m.state}: ${why}` : m.drains_ms ? `draining for ${span(m.drains_ms)}` : null };
}

// profile is what a node states of itself, also of a member that has gone: the drawer shows it, and the filter
// searches it.
export function profile(m) {
  const labels = Object.entries(m.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ");
  return [
    ["Zone", m.zone],
    ["Labels", labels],
    ["Gossip", m.addr],
    ["Application", m.api_addr],
    ["Application version", m.app_version],
    ["roost version", m.roost_version],
  ];
}

function weight(m) {
  return m.weight ? { text: count(m.weight) } : { text: "0", level: "warn", title: "weight 0: owns no partitions" };
}

// tightest describes the tightest resource of this node: only the node itself knows it. "": it is not known.
export function tightest(m, { self, stats }) {
  const r = m.id === self && stats?.resources?.find((resource) => resource.tightest);
  return r ? `${r.name} ${percent(r.use / r.capacity, 0)}` : "";
}

export function load(m, model) {
  if (!m.capacity) return { text: count(m.load), title: "no capacity reported" };
  const share = m.load / m.capacity;
  return { text: `${count(m.load)} of ${count(m.capacity)}`, share, level: share > 1 ? "bad" : share > 0.8 ? "warn" : "", title: [percent(share), tightest(m, model)].filter(Boolean).join("; ") };
}

function partitions(m, model) {
  if (!model.table) return { text: "–" };
  const n = owned(m, model), all = model.table.owners.length;
  const most = Math.max(1, ...model.counts.values());
  return { text: count(n), share: n / most, title: `${percent(n / all)} of ${count(all)}`, color: true };
}

export function offset(m) {
  const ms = m.clock_offset_ms;
  return { text: ms === 0 ? "±0 ms" : `${ms > 0 ? "+" : "−"}${span(ms)}`, level: Math.abs(ms) > 1000 ? "warn" : "", title: "offset from this node's clock" };
}

// gone returns the cells of a member that is not live any more, by the keys of columns.
function gone(l) {
  return {
    state: { text: `✕ ${l.reason}` }, zone: { text: l.zone || "–" }, age: { text: ago(l.ago_ms) },
    partitions: { text: l.partitions ? `owned ${count(l.partitions)}` : "owned none" },
  };
}

export class MemberTable {
  #model;
  #rows = new Map(); // by id; rows of gone members by "gone " and the id
  #sort = columns[0];
  #falling = false;
  #open; // shows the facts of a node
  #roved = rove($("members-body"), ".name button");

  constructor(model, open) {
    this.#model = model;
    this.#open = open;
    $("members-head").append(...columns.map((c) => h("th", { role: "columnheader", scope: "col", "data-column": c.key },
      h("button", { type: "button", onclick: () => this.#sortBy(c) }, c.name))));
    rove($("members-head"), "button")();
    $("members-more").before(shorten($("members-body"), "rows"));
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
    const { members, lost } = this.#model;
    const few = members.length + lost.length < filterFrom;
    $("members-filter-label").hidden = few;
    const wanted = few ? "" : $("members-filter").value.trim().toLowerCase();
    const words = (m) => [m.id, m.state ?? m.reason, ...profile(m).map(([, text]) => text)];
    const found = (m) => !wanted || words(m).join(" ").toLowerCase().includes(wanted);
    const { by } = this.#sort;
    const usual = (m) => Number(this.#sort === columns[0] && m.state === "active"); // by name, the others come first
    const shown = members.filter(found)
      .sort((a, b) => usual(a) - usual(b) || (this.#falling ? -1 : 1) * compare(by(a, this.#model), by(b, this.#model)) || compare(a.id, b.id));
    const ended = lost.filter(found).slice(0, goneRows);
    const ids = new Set([...ended.map((l) => `gone ${l.id}`), ...shown.map((m) => m.id)]);
    for (const [id, row] of this.#rows) {
      if (ids.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    [...ended.map((l) => this.#endedRow(l)), ...shown.map((m) => this.#update(this.#rows.get(m.id) ?? this.#row(m.id, m.id), m))].forEach((row, i) => {
      const body = $("members-body");
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    });
    const more = lost.filter(found).length - ended.length;
    say($("members-more"), more > 0 ? `${plural(more, "more member has", "more members have")} gone within 30 minutes: roost members lists all` : "");
    this.#roved();
  }

  // row adds the row of a node under a key.
  #row(key, id) {
    const name = h("th", { role: "rowheader", scope: "row", class: "name" },
      h("button", { type: "button", tabindex: "-1", title: "Facts of this node", onclick: () => this.#open(id) },
        h("span", { class: "swatch", "aria-hidden": "true" }), h("span", { class: "id", text: id })),
      h("span", { class: "badge", text: "this node" }));
    // The button is for the keyboard and for screen readers, the row for a mouse, unless it selects text.
    const row = h("tr", { role: "row", onclick: ({ target }) => {
      if (!target.closest("button") && getSelection().isCollapsed) this.#open(id);
    } }, name, ...columns.slice(1).map((c) =>
      h("td", { role: "cell", "data-label": c.name, class: c.key }, h("span", { class: "value" }))));
    this.#rows.set(key, row);
    return row;
  }

  #endedRow(l) {
    const row = this.#rows.get(`gone ${l.id}`) ?? this.#row(`gone ${l.id}`, l.id);
    row.className = l.reason === "left" ? "gone left" : "gone";
    const cells = gone(l);
    row.firstChild.lastChild.hidden = true;
    columns.slice(1).forEach((c, i) => say(row.children[i + 1].firstChild, cells[c.key]?.text ?? ""));
    return row;
  }

  #update(row, m) {
    const [name, ...cells] = row.children;
    paint(row, colorOf(m.id));
    name.lastChild.hidden = m.id !== this.#model.self;
    columns.slice(1).forEach((c, i) => {
      const { text, level, share, title, color } = c.show(m, this.#model);
      const cell = cells[i];
      say(cell.firstChild, text);
      attribute(cell, "data-level", level || null);
      attribute(cell, "title", title);
      if (share === undefined) {
        if (cell.classList.contains("bar")) cell.classList.remove("bar");
        return;
      }
      if (!cell.classList.contains("bar")) cell.classList.add("bar", ...(color ? ["own"] : []));
      cell.style.setProperty("--share", Math.min(1, share).toFixed(3));
    });
    return row;
  }
}
