// A colour for each node. The first eight are those of Okabe and Ito, which people with any
// colour vision can distinguish. No set of more than about twelve colours has that
// property: then neighbours also differ in lightness, and the map shows owners by pointer,
// by keyboard and with a single node selected.

const first = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c",
  "#5b4bc4", "#a3d55d", "#9c2450", "#7d5a3c",
];
const tiers = [[0.66, 0.15], [0.82, 0.1], [0.5, 0.13]]; // lightness and chroma

// A node keeps its colour while this page is open, even if it leaves and returns.
const slots = new Map();

export function colorOf(id) {
  let slot = slots.get(id);
  if (slot === undefined) {
    slot = slots.size;
    slots.set(id, slot);
  }
  if (slot < first.length) return first[slot];
  const n = slot - first.length;
  const [lightness, chroma] = tiers[n % tiers.length];
  const hue = (200 + n * 137.508) % 360; // the golden angle: neighbours are far apart
  return `oklch(${lightness} ${chroma} ${hue.toFixed(1)})`;
}
