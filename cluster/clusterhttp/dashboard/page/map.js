// The partition map: a cell for each partition, node by node. When partitions have moved, the
// others fade for a minute, so that the change stands out.

import { $, ago, attribute, byName, count, eachFrame, h, paint, percent, plural, say, swatch } from "./dom.js";
import { Grid } from "./grid.js";
import { lastTable } from "./model.js";
import { colorOf } from "./palette.js";
import { rove } from "./roving.js";

const chipsFor = 24; // nodes or zones; beyond that there is only the list
const faint = 0.28, alternate = 0.72; // alpha: of what did not move, and of a node beside another one of its colour

export class PartitionMap {
  #model;
  #canvas = $("map-canvas");
  #context = this.#canvas.getContext("2d");
  #grid = new Grid();
  #at = -1; // partition under the cursor
  #ink = "";
  #draw = eachFrame(() => this.#render());
  #legend = eachFrame(() => this.#renderLegend());
  #chips = new Map(); // legend, by what a chip highlights
  #roved = rove($("legend"), "button");

  constructor(model) {
    this.#model = model;
    model.listen((kind) => this.#hear(kind));
    new ResizeObserver(this.#draw).observe($("map"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.#draw);
    $("map-focus").addEventListener("change", (e) => {
      model.focus = "";
      model.setFocus(e.target.value);
    });
    this.#canvas.addEventListener("pointermove", (e) => this.#point(this.#grid.at(e.offsetX, e.offsetY)));
    this.#canvas.addEventListener("pointerleave", () => this.#point(-1));
    this.#canvas.addEventListener("keydown", (e) => this.#key(e));
    this.#canvas.addEventListener("blur", () => this.#point(-1));
  }

  // show moves the cursor to a partition, as after a lookup.
  show(partition) { this.#point(partition); }

  repaint() { this.#draw(); }

  #hear(kind) {
    if (kind === "moves" || kind === "focus" || (kind === "change" && this.#model.fade())) this.#draw();
    if (kind === "change" || kind === "focus") this.#legend();
  }

  // lit reports whether a node is highlighted, or nothing is.
  #lit(owner) {
    const { focus } = this.#model;
    return !focus || (focus[0] === "n" ? focus.slice(1) === owner : focus.slice(1) === this.#model.zoneOf(owner));
  }

  // byZone sorts nodes by zone and name.
  #byZone(ids) { return ids.sort((a, b) => byName(this.#model.zoneOf(a), this.#model.zoneOf(b)) || byName(a, b)); }

  // blocks groups the partitions by owner, zone by zone, with the moved ones at the end.
  #blocks() {
    const { table, moved } = this.#model;
    const byOwner = new Map();
    table.owners.forEach((owner, p) => {
      let block = byOwner.get(owner);
      if (!block) byOwner.set(owner, block = { owner, stayed: [], moved: [] });
      block[moved.has(p) ? "moved" : "stayed"].push(p);
    });
    return this.#byZone([...byOwner.keys()]).map((owner) => byOwner.get(owner));
  }

  #render() {
    const { table, moved } = this.#model;
    const width = $("map").clientWidth;
    if (!table || !width) return; // a hidden map is drawn when it is shown
    const blocks = this.#blocks(), c = this.#context;
    this.#grid.fit(this.#canvas, width, table.owners.length);
    this.#grid.order(blocks.flatMap((b) => [...b.stayed, ...b.moved]));
    this.#ink = getComputedStyle(this.#canvas).color;
    c.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    const fill = (x, y, w, hgt) => c.fillRect(x, y, w, hgt);
    let at = 0, odd = false, before = "";
    for (const { owner, stayed, moved: gained } of blocks) {
      odd = colorOf(owner) === before && !odd;
      before = colorOf(owner);
      const full = (this.#lit(owner) ? 1 : 0.13) * (odd ? alternate : 1);
      c.fillStyle = owner ? colorOf(owner) : this.#ink;
      if (!owner) { // without an owner: empty frames
        c.globalAlpha = 1;
        this.#grid.boxes(at, at + stayed.length + gained.length, (x, y, w, hgt) => {
          fill(x, y, w, hgt);
          c.clearRect(x + 1, y + 1, w - 2, hgt - 2);
        });
      } else {
        c.globalAlpha = moved.size ? full * faint : full;
        this.#grid.boxes(at, at + stayed.length, fill);
        c.globalAlpha = full;
        this.#grid.boxes(at + stayed.length, at + stayed.length + gained.length, fill);
      }
      at += stayed.length + gained.length;
    }
    c.globalAlpha = 1;
    this.#place();
  }

  #point(p) {
    this.#at = p < (this.#model.table?.owners.length ?? 0) ? p : -1;
    this.#place();
  }

  #key(e) {
    const last = (this.#model.table?.owners.length ?? 0) - 1;
    const at = this.#at < 0 ? -1 : this.#grid.indexOf(this.#at);
    const steps = {
      ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at < 0 ? 0 : at + this.#grid.columns,
      ArrowUp: at - this.#grid.columns, Home: 0, End: last,
    };
    if (e.key === "Escape") this.#point(-1);
    if (!(e.key in steps) || last < 0) return;
    e.preventDefault();
    this.#point(this.#grid.partition(Math.min(last, Math.max(0, steps[e.key]))));
    say($("map-said"), $("map-tip").textContent);
  }

  // place moves frame and tip to the cursor.
  #place() {
    const cursor = $("map-cursor"), tip = $("map-tip");
    cursor.hidden = tip.hidden = this.#at < 0;
    if (this.#at < 0) return;
    const { table, moved } = this.#model;
    const owner = table.owners[this.#at], was = moved.get(this.#at);
    tip.replaceChildren(swatch(owner ? colorOf(owner) : "transparent"), h("span", {
      text: `Partition ${this.#at}: ${owner || "no node"}${was ? `, from ${was.from || "no node"} ${ago(Date.now() - was.at)}` : ""}`,
    }));
    if (!$("map").clientWidth) return;
    const [x, y, w, hgt] = this.#grid.box(this.#grid.indexOf(this.#at)).map((v) => v / this.#grid.ratio);
    Object.assign(cursor.style, { left: `${x - 2}px`, top: `${y - 2}px`, width: `${w + 4}px`, height: `${hgt + 4}px` });
    tip.style.left = "0"; // otherwise it is narrower near the right edge
    const room = $("map").clientWidth - tip.offsetWidth;
    const below = y + hgt + 8, above = y - tip.offsetHeight - 8;
    Object.assign(tip.style, { left: `${Math.max(0, Math.min(room, x - 12))}px`, top: `${above > 0 ? above : below}px` });
  }

  #renderLegend() {
    const { members, counts, table, stale, focus, moved } = this.#model, zoneOf = (id) => this.#model.zoneOf(id);
    if (!table || !$("map").clientWidth) return;
    this.#place(); // updates the age of the last move
    attribute(this.#canvas, "aria-label", `Map of ${plural(table.owners.length, "partition")} on ${plural(counts.size, "node")}`);
    say($("map-note"), `${stale ? `${lastTable} ` : ""}${plural(table.owners.length, "partition")} by ${table.strategy}. ${evenness(table)}`);
    say($("map-moved"), moved.size ? `${plural(moved.size, "partition")} moved within the last minute: shown in full colour` : "Nothing moved within the last minute.");
    const nodes = this.#byZone([...new Set([...members.map((m) => m.id), ...counts.keys()])]);
    const zones = [...new Set(nodes.map(zoneOf))];
    this.#choices(nodes, zones.length > 1 ? zones : [], focus);
    const gained = new Map();
    for (const p of moved.keys()) gained.set(table.owners[p], (gained.get(table.owners[p]) ?? 0) + 1);
    const sum = (of, zone) => nodes.filter((id) => zoneOf(id) === zone).reduce((n, id) => n + (of.get(id) ?? 0), 0);
    const chips = nodes.length > chipsFor && zones.length > 1
      ? zones.map((zone) => ({ key: `z${zone}`, name: zone || "no zone", owned: sum(counts, zone), gained: sum(gained, zone) }))
      : nodes.map((id) => ({ key: `n${id}`, name: id, color: colorOf(id), owned: counts.get(id) ?? 0, gained: gained.get(id) ?? 0 }));
    this.#list(chips.length > chipsFor ? [] : chips, focus);
  }

  // choices sets the list of what can be highlighted.
  #choices(nodes, zones, focus) {
    const select = $("map-focus"), wanted = ["", ...zones.map((z) => `z${z}`), ...nodes.map((id) => `n${id}`)];
    if (select.length !== wanted.length || wanted.some((value, i) => select.options[i].value !== value)) {
      const options = (prefix, names) => names.map((name) => h("option", { value: prefix + name, text: name || "no zone" }));
      select.replaceChildren(h("option", { value: "", text: "nothing" }),
        ...(zones.length ? [h("optgroup", { label: "Zones" }, ...options("z", zones))] : []), h("optgroup", { label: "Nodes" }, ...options("n", nodes)));
    }
    if (select.value !== focus) select.value = focus;
  }

  #list(chips, focus) {
    for (const [key, chip] of this.#chips) {
      if (chips.some((c) => c.key === key)) continue;
      chip.remove();
      this.#chips.delete(key);
    }
    chips.forEach(({ key, name, color, owned, gained }, i) => {
      const chip = this.#chips.get(key) ?? this.#chip(key, name);
      const [square, , amount] = chip.firstChild.children;
      square.hidden = !color; // of a zone
      paint(square, color ?? "transparent");
      attribute(chip.firstChild, "aria-pressed", String(focus === key));
      say(amount, gained ? `${count(owned)} (+${count(gained)})` : count(owned));
      if ($("legend").children[i] !== chip) $("legend").insertBefore(chip, $("legend").children[i] ?? null);
    });
    this.#roved();
  }

  #chip(key, name) {
    const chip = h("li", {}, h("button", { type: "button", class: "chip", tabindex: "-1", title: `Highlight ${name}`, onclick: () => this.#model.setFocus(key) },
      h("span", { class: "swatch", "aria-hidden": "true" }), h("span", { text: name }), h("span", { class: "amount" })));
    this.#chips.set(key, chip);
    return chip;
  }
}

// evenness shows the numbers; whether they are good is a check of doctor.
function evenness({ balance, nodes }) {
  if (!nodes.length) return "No member may own them.";
  return `Shares vary by ${percent(balance.cv)}; the fullest node has ${balance.max_mean.toFixed(2)} × its fair share.`;
}
