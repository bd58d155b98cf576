// The positions of the cells of the partition map, in device pixels, so that all cells are
// sharp.

import { byName } from "./dom.js";

const tall = 250; // approximate maximum height of the map, in CSS pixels

export class Grid {
  columns = 1;
  ratio = 1; // device pixels in a CSS pixel
  #xs = []; // left edges of the columns, and the right edge of the last
  #row = 1;
  #gap = 0;
  #place = null; // partition → index; null: identity
  #order = null; // index → partition

  // fit arranges the cells in the given width, and sizes the canvas.
  fit(canvas, width, owners, byOwner) {
    this.ratio = window.devicePixelRatio || 1;
    const cell = Math.max(3, Math.min(26, Math.round(Math.sqrt((width * tall) / owners.length))));
    this.columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.ceil(owners.length / this.columns);
    const wide = Math.round(width * this.ratio);
    this.#xs = Array.from({ length: this.columns + 1 }, (_, i) => Math.round((i * wide) / this.columns));
    this.#row = Math.round(cell * this.ratio);
    this.#gap = cell >= 10 ? Math.round(2 * this.ratio) : cell >= 5 ? Math.round(this.ratio) : 0;
    canvas.width = wide;
    canvas.height = rows * this.#row;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${canvas.height / this.ratio}px`;
    this.#sort(byOwner ? owners : null);
  }

  #sort(owners) {
    this.#order = this.#place = null;
    if (!owners) return;
    const byOwner = Map.groupBy(owners.keys(), (p) => owners[p]);
    this.#order = [...byOwner.keys()].sort(byName).flatMap((id) => byOwner.get(id));
    this.#place = new Array(owners.length);
    this.#order.forEach((p, i) => { this.#place[p] = i; });
  }

  indexOf(partition) { return this.#place ? this.#place[partition] : partition; }
  partition(index) { return this.#order ? this.#order[index] ?? -1 : index; }

  // box returns x, y, width and height of a partition's cell.
  box(partition) {
    const i = this.indexOf(partition);
    const column = i % this.columns;
    const x = this.#xs[column], y = Math.floor(i / this.columns) * this.#row;
    return [x, y, this.#xs[column + 1] - x - this.#gap, this.#row - this.#gap];
  }

  // at returns the partition at a point in CSS pixels, or -1.
  at(x, y) {
    const wide = this.#xs[this.columns];
    const column = Math.floor((x * this.ratio * this.columns) / wide);
    if (column < 0 || column >= this.columns || y < 0) return -1;
    return this.partition(Math.floor((y * this.ratio) / this.#row) * this.columns + column);
  }
}
