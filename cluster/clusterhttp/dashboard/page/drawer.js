// The facts of one node: a panel at the side.

import { $, ago, attribute, count, eachFrame, h, paint, percent, say, span } from "./dom.js";
import { load, offset, owned, profile, state, tightest } from "./members.js";
import { colorOf } from "./palette.js";
import { RoomList } from "./rooms.js";
import { spark } from "./spark.js";

export class Drawer {
  #model;
  #id = "";
  #showMap;
  #rooms;

  // showMap shows the map after a node was highlighted there.
  constructor(model, showMap) {
    this.#model = model;
    this.#showMap = showMap;
    this.#rooms = "rooms" in document.documentElement.dataset ? new RoomList(model) : null;
    const render = eachFrame(() => this.#render());
    model.listen((kind) => {
      if (kind === "change" && $("node").open) render();
    });
    $("node-close").addEventListener("click", () => $("node").close());
    $("node").addEventListener("click", (e) => {
      if (e.target === $("node")) $("node").close(); // the backdrop
    });
    $("node-map").addEventListener("click", () => {
      $("node").close();
      this.#model.focus = "";
      this.#model.setFocus(`n${this.#id}`);
      this.#showMap();
    });
  }

  open(id) {
    this.#id = id;
    this.#rooms?.show(id);
    this.#render();
    $("node").showModal();
  }

  #render() {
    const { members, lost, self, history } = this.#model;
    const m = members.find((other) => other.id === this.#id), l = lost.find((other) => other.id === this.#id);
    say($("node-title"), this.#id);
    paint($("node-swatch"), m ? colorOf(m.id) : "transparent");
    $("node-map").hidden = !m;
    const facts = m ? this.#facts(m) : l ? ended(l) : [["State", "not a member"]];
    const list = $("node-facts");
    const same = list.children.length === 2 * facts.length && facts.every(([name], i) => list.children[2 * i].textContent === name);
    if (!same) list.replaceChildren(...facts.flatMap(([name]) => [h("dt", { text: name }), h("dd")]));
    facts.forEach(([, value, level], i) => {
      const cell = list.children[2 * i + 1];
      attribute(cell, "data-level", level || null);
      if (typeof value === "string") say(cell, value);
      else if (cell.textContent !== value.textContent) cell.replaceChildren(value);
    });
    $("node-past").hidden = this.#id !== self;
    if (this.#id !== self) return;
    spark("node-owned", history, "owned", "Partitions of this node");
    spark("node-load", history, "load", "Load of this node");
  }

  #facts(m) {
    const { table, ttl } = this.#model;
    const n = owned(m, this.#model), carried = load(m, this.#model), clock = offset(m), is = state(m), tight = tightest(m, this.#model);
    const facts = [
      ["State", `${is.text}${m.cordoned ? ` for ${span(m.cordoned.for_ms)}${m.cordoned.reason ? `: ${m.cordoned.reason}` : ""}` : is.word === "flapping" ? ` for ${span(m.flapping_ms)}` : m.drains_ms ? ` for ${span(m.drains_ms)} so far` : ""}`, is.level],
      ...stated(m),
      ["Page", pageOf(m.http)],
      ["Lease", m.age_ms ? `${span(m.age_ms)} of ${span(ttl)}` : "–"],
      ["Weight", count(m.weight)],
      ["Load", m.no_load ? "not reported" : carried.share === undefined ? carried.text : `${carried.text}, ${percent(carried.share, 0)}`, carried.level],
      ...(tight ? [["Tightest resource", tight]] : []),
      ["Partitions", table ? `${count(n)}, ${percent(n / table.owners.length)} of all` : "–"],
      ["Clock", clock.text, clock.level],
      ["Table", m.in_sync ? "the same" : "another one", m.in_sync ? "" : "warn"],
      ["Incarnation", m.incarnation],
    ];
    if (m.keys?.length) facts.push(["Keys", m.keys.join(", ")]);
    if (m.meta) facts.push(["Meta", `${atob(m.meta).length} bytes`]);
    return facts;
  }
}

// stated is the profile of a node, with a dash for what it does not state.
const stated = (m) => profile(m).map(([name, text]) => [name, text || "–"]);

// pageOf links to the page of a node, if it states where its agent serves HTTP. The address comes
// from another node: only http and https are followed.
function pageOf(address) {
  let url = null;
  try {
    url = new URL(address?.includes("://") ? address : `http://${address}/`);
  } catch {
    // no address
  }
  if (!address || !["http:", "https:"].includes(url?.protocol)) return "not known";
  return h("a", { href: url.href, rel: "noopener noreferrer", target: "_blank", text: url.host });
}

function ended(l) {
  return [
    ["State", `${l.reason} ${ago(l.ago_ms)}`, l.reason === "left" ? "" : "bad"],
    ["Partitions", l.partitions ? `owned ${count(l.partitions)}; others own these since` : "owned none"],
    ...stated(l),
    ["Incarnation", l.incarnation],
  ];
}
