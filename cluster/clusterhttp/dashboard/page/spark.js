// Sparklines: samples of the agent's history over half an hour, with their scale.

import { $, attribute, count, h, say } from "./dom.js";

const svg = "http://www.w3.org/2000/svg";
const width = 180, height = 24; // of the drawing, which is stretched
const least = 2 * 60 * 1000; // ms that the drawing spans, while the history is young

// spark draws one field of the samples into the element of an id. A line that is flat is drawn in the middle.
export function spark(id, history, field, what) {
  const samples = history?.samples ?? [];
  const values = samples.map((f) => f[field]);
  const low = Math.min(...values), high = Math.max(...values);
  $(id).hidden = samples.length < 4; // fewer make no line to read
  if ($(id).hidden) return;
  const now = Date.parse(history.now), span = Math.max(least, now - Date.parse(samples[0].at));
  const y = (v) => (high === low ? height / 2 : height - 1.5 - ((v - low) / (high - low)) * (height - 3));
  const points = samples.map((f) => `${(width * (1 - (now - Date.parse(f.at)) / span)).toFixed(1)},${y(f[field]).toFixed(1)}`).join(" ");
  if (!$(id).firstChild) $(id).append(...chart());
  const [drawing, scale, caption] = $(id).children;
  attribute(drawing.firstChild, "points", points);
  const minutes = Math.round(span / 60000);
  attribute(drawing, "aria-label", `${what} in the last ${minutes} minutes: ${low === high ? count(high) : `${count(low)} to ${count(high)}`}`);
  say(scale.firstChild, count(high));
  say(scale.lastChild, low === high ? "" : count(low));
  say(caption, `${what}, ${minutes} min`);
}

// chart returns the parts of a sparkline: the drawing, the greatest and the least value, and what it shows.
function chart() {
  const drawing = document.createElementNS(svg, "svg");
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("role", "img");
  drawing.append(document.createElementNS(svg, "polyline"));
  return [drawing, h("div", { class: "scale", "aria-hidden": "true" }, h("span"), h("span")), h("div", { class: "caption", "aria-hidden": "true" })];
}
