// The colours of nodes. A colour follows from the id of its node, so that it is the same in every window, and remains when
// other nodes come and go. The first eight are those of Okabe and Ito, which people with any colour vision can distinguish.
// No larger set has that property: the others are lighter and darker shades of these.

import { byName } from "./dom.js";

const colours = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c",
  "#73b1d5", "#f1ca73", "#73cab2", "#e3b5cf", "#a2d6f3", "#e8a673", "#f7f097", "#c0c0c0",
  "#00507d", "#a16f00", "#006f51", "#8f5575", "#3c7ea3", "#954200", "#a8a02e", "#626262",
];

// place returns where the colour of an id is in the list. Ids that differ in their last character have different places.
// node-1 and node-a have the first place.
function place(id) {
  let sum = 0;
  for (const c of id) sum = (31 * sum + c.codePointAt(0)) >>> 0;
  return (sum + 18) % colours.length;
}

let taken = new Map(); // places by id

// colour gives colours to nodes. Of two with the same place, the second by name gets the next one that is free. If none
// is, the two share their colour.
export function colour(ids) {
  const used = new Set(), others = [];
  const take = (id, at) => {
    used.add(at);
    taken.set(id, at);
  };
  taken = new Map();
  for (const id of [...ids].sort(byName)) {
    if (used.has(place(id))) others.push(id);
    else take(id, place(id));
  }
  for (const id of others) {
    let at = place(id);
    while (used.has(at) && used.size < colours.length) at = (at + 1) % colours.length;
    take(id, at);
  }
}

export const colorOf = (id) => colours[taken.get(id) ?? place(id)];
