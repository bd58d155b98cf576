// A colour for each node. The first eight are those of Okabe and Ito, which people
// with any colour vision tell apart. Beyond some twelve no set of colours is left that
// everybody tells apart: then lightness differs between neighbours as well, and the
// map also tells by pointing at it, by the keyboard and by showing one node alone.

const first = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c",
  "#5b4bc4", "#a3d55d", "#9c2450", "#7d5a3c",
];
const tiers = [[0.66, 0.15], [0.82, 0.1], [0.5, 0.13]]; // lightness and chroma

// A node keeps its colour while this page is open, even if it goes and comes back.
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
