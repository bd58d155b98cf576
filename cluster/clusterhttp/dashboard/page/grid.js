// The positions of the cells of the partition map, in device pixels, so that all cells are
// sharp. The cells of a node are next to each other.

const tall = 250; // approximate maximum height of the map, in CSS pixels

export class Grid {
  columns = 1;
  ratio = 1; // device pixels in a CSS pixel
  #xs = []; // left edges of the columns, and the right edge of the last
  #row = 1;
  #gap = 0;
  #order = []; // index → partition
  #place = new Map(); // partition → index

  // fit arranges so many cells in the given width, and sizes the canvas.
  fit(canvas, width, cells) {
    this.ratio = window.devicePixelRatio || 1;
    const cell = Math.max(3, Math.min(26, Math.round(Math.sqrt((width * tall) / cells))));
    this.columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.ceil(cells / this.columns);
    const wide = Math.round(width * this.ratio);
    this.#xs = Array.from({ length: this.columns + 1 }, (_, i) => Math.round((i * wide) / this.columns));
    this.#row = Math.round(cell * this.ratio);
    this.#gap = cell >= 10 ? Math.round(2 * this.ratio) : cell >= 5 ? Math.round(this.ratio) : 0;
    const high = rows * this.#row;
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${high / this.ratio}px`;
  }

  // order puts the partitions into this order.
  order(partitions) {
    this.#order = partitions;
    this.#place = null;
  }

  indexOf(partition) {
    if (!this.#place) {
      this.#place = new Uint32Array(this.#order.length);
      this.#order.forEach((p, i) => { this.#place[p] = i; });
    }
    return this.#place[partition];
  }

  partition(index) { return this.#order[index] ?? -1; }

  // box returns x, y, width and height of the cell at an index.
  box(i) {
    const column = i % this.columns;
    const x = this.#xs[column], y = Math.floor(i / this.columns) * this.#row;
    return [x, y, this.#xs[column + 1] - x - this.#gap, this.#row - this.#gap];
  }

  // boxes calls f with the boxes of the cells from one index to before another: one for a piece of a
  // row, if there are no gaps between cells.
  boxes(from, to, f) {
    if (this.#gap) {
      for (let i = from; i < to; i++) f(...this.box(i));
      return;
    }
    for (let i = from; i < to;) {
      const end = Math.min(to, (Math.floor(i / this.columns) + 1) * this.columns);
      const [x, y, , high] = this.box(i), [last, , wide] = this.box(end - 1);
      f(x, y, last + wide - x, high);
      i = end;
    }
  }

  // at returns the partition at a point in CSS pixels, or -1.
  at(x, y) {
    const wide = this.#xs[this.columns];
    const column = Math.floor((x * this.ratio * this.columns) / wide);
    if (column < 0 || column >= this.columns || y < 0) return -1;
    return this.partition(Math.floor((y * this.ratio) / this.#row) * this.columns + column);
  }
}
