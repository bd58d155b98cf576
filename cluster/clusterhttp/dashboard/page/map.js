// The partition map: a cell for each partition, in its owner's colour. A moved partition
// flashes.

import { $, byName, count, eachFrame, fill, h, paint, plural, say, span, swatch } from "./dom.js";
import { Grid } from "./grid.js";
import { colorOf } from "./palette.js";

const flash = 1100; // ms
const legendFor = 16; // nodes; beyond that there is only the list
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class PartitionMap {
  #model;
  #canvas = $("map-canvas");
  #context = this.#canvas.getContext("2d");
  #grid = new Grid();
  #flashing = new Map(); // partition → start time
  #dirty = new Set(); // partitions to redraw
  #all = true; // redraw all
  #at = -1; // partition under the cursor
  #ink = "";
  #ask = eachFrame((now) => this.#frame(now));
  #chips = new Map(); // legend, by node

  constructor(model) {
    this.#model = model;
    const legend = eachFrame(() => {
      this.#legend();
      this.#place(); // updates the age of the last move
    });
    model.listen((kind, what) => this.#hear(kind, what, legend));
    new ResizeObserver(() => this.#draw()).observe($("map"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    $("map-order").addEventListener("change", () => this.#draw());
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

  #hear(kind, what, legend) {
    if (kind === "table" || kind === "focus") this.#draw();
    if (kind === "moves") this.#move(what);
    if (kind === "change") legend();
  }

  #move(partitions) {
    const now = performance.now();
    if (!still.matches) for (const p of partitions) this.#flashing.set(p, now);
    for (const p of partitions) this.#dirty.add(p);
    this.#all ||= $("map-order").value === "owner"; // other cells move, too
    this.#ask();
  }

  #draw() {
    this.#all = true;
    this.#ask();
  }

  #frame(now) {
    const { table } = this.#model;
    if (!table) return;
    if (this.#all) {
      this.#all = false;
      this.#grid.fit(this.#canvas, $("map").clientWidth, table.owners, $("map-order").value === "owner");
      this.#ink = getComputedStyle(this.#canvas).color;
      this.#paint(table.owners.keys());
      this.#place();
    } else {
      this.#paint(this.#dirty.union(this.#flashing));
    }
    this.#dirty.clear();
    const c = this.#context;
    c.fillStyle = this.#ink;
    for (const [p, began] of this.#flashing) {
      const t = Math.max(0, (now - began) / flash);
      if (t >= 1) {
        this.#flashing.delete(p);
        continue;
      }
      c.globalAlpha = (1 - t) ** 1.5;
      c.fillRect(...this.#grid.box(p));
    }
    c.globalAlpha = 1;
    if (this.#flashing.size) this.#ask();
  }

  // paint draws cells owner by owner, because a change of colour costs more than a cell.
  #paint(partitions) {
    const { table, focus } = this.#model;
    const c = this.#context;
    for (const [owner, cells] of Map.groupBy(partitions, (p) => table.owners[p])) {
      const alpha = focus && focus !== owner ? 0.13 : 1;
      if (alpha < 1 || !owner) for (const p of cells) c.clearRect(...this.#grid.box(p));
      c.globalAlpha = alpha;
      c.fillStyle = owner ? colorOf(owner) : this.#ink;
      for (const p of cells) {
        const [x, y, w, hgt] = this.#grid.box(p);
        c.fillRect(x, y, w, hgt);
        if (!owner) c.clearRect(x + 1, y + 1, w - 2, hgt - 2); // without an owner: an empty frame
      }
    }
    c.globalAlpha = 1;
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
    const owner = table.owners[this.#at];
    const [x, y, w, hgt] = this.#grid.box(this.#at).map((v) => v / this.#grid.ratio);
    Object.assign(cursor.style, { left: `${x - 2}px`, top: `${y - 2}px`, width: `${w + 4}px`, height: `${hgt + 4}px` });
    const was = moved.get(this.#at);
    tip.replaceChildren(swatch(owner ? colorOf(owner) : "transparent"), h("span", {
      text: `Partition ${this.#at}: ${owner || "no node"}${was ? `, from ${was.from || "no node"} ${span(Date.now() - was.at)} ago` : ""}`,
    }));
    tip.style.left = "0"; // otherwise it is narrower near the right edge
    const room = $("map").clientWidth - tip.offsetWidth;
    const below = y + hgt + 8, above = y - tip.offsetHeight - 8;
    Object.assign(tip.style, { left: `${Math.max(0, Math.min(room, x - 12))}px`, top: `${above > 0 ? above : below}px` });
  }

  #legend() {
    const { members, counts, table, focus } = this.#model;
    if (!table) return;
    this.#canvas.setAttribute("aria-label", `Map of ${plural(table.owners.length, "partition")} on ${plural(counts.size, "node")}`);
    const owners = [...new Set([...members.map((m) => m.id), ...counts.keys()])].sort(byName);
    owners.forEach(colorOf); // colours follow the order of names, not of cells
    fill($("map-focus"), [["", "all nodes"], ...owners.map((id) => [id, id])]);
    if ($("map-focus").value !== focus) $("map-focus").value = focus;
    const chips = owners.length > legendFor ? [] : owners;
    for (const [id, chip] of this.#chips) {
      if (chips.includes(id)) continue;
      chip.remove();
      this.#chips.delete(id);
    }
    chips.forEach((id, i) => {
      const chip = this.#chips.get(id) ?? this.#chip(id);
      chip.firstChild.setAttribute("aria-pressed", focus === id);
      say(chip.firstChild.lastChild, count(counts.get(id) || 0));
      const here = $("legend").children[i];
      if (here !== chip) $("legend").insertBefore(chip, here ?? null);
    });
  }

  #chip(id) {
    const chip = h("li", {}, h("button", { type: "button", class: "chip", title: `Show ${id} alone`, onclick: () => this.#model.setFocus(id) },
      h("span", { class: "swatch", "aria-hidden": "true" }), h("span", { text: id }), h("span", { class: "amount" })));
    paint(chip.querySelector(".swatch"), colorOf(id));
    this.#chips.set(id, chip);
    return chip;
  }
}
