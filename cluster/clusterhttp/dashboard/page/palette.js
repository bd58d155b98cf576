// The colours of nodes. Up to eight nodes have one each: those of Okabe and Ito, which people with
// any colour vision can distinguish. No larger set has that property, so in larger clusters the
// nodes of a zone share a colour, and a node is found by its highlight.

import { byName } from "./dom.js";

const eight = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c"];

let zones = new Map(); // by node
let colours = new Map(); // by node, or by zone
let byZone = false;

// colour gives colours to the nodes of these zones. A node keeps its colour while it is among
// eight or fewer, even if it leaves and returns; zones have theirs by name.
export function colour(nodes) {
  zones = nodes;
  const many = nodes.size > eight.length;
  if (many !== byZone) colours.clear();
  byZone = many;
  if (many) {
    const names = [...new Set(nodes.values())].sort(byName);
    colours = new Map(names.map((zone, i) => [zone, zoneColour(i)]));
    return;
  }
  for (const id of [...colours.keys()]) if (colours.size > eight.length && !nodes.has(id)) colours.delete(id);
  for (const id of [...nodes.keys()].sort(byName)) {
    if (colours.has(id)) continue;
    const taken = new Set([...nodes.keys()].map((other) => colours.get(other)));
    const free = eight.filter((c) => !taken.has(c));
    const unused = free.filter((c) => ![...colours.values()].includes(c));
    colours.set(id, unused[0] ?? free[0]);
  }
}

const zoneColour = (i) => (i < eight.length ? eight[i] : `oklch(0.68 0.13 ${((200 + i * 137.508) % 360).toFixed(1)})`); // the golden angle: neighbours are far apart

export const colouredByZone = () => byZone;
export const zoneOf = (id) => zones.get(id) ?? "";
export const colorOfZone = (zone) => colours.get(zone) ?? "#8c8c8c";
export const colorOf = (id) => colours.get(byZone ? zoneOf(id) : id) ?? "#8c8c8c";
