// Sparklines: samples of the agent's history over half an hour.

import { $, attribute, count } from "./dom.js";

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
  let line = $(id).querySelector("polyline");
  if (!line) {
    const chart = document.createElementNS(svg, "svg");
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.setAttribute("preserveAspectRatio", "none");
    chart.setAttribute("role", "img");
    line = document.createElementNS(svg, "polyline");
    chart.append(line);
    $(id).replaceChildren(chart);
  }
  attribute(line, "points", points);
  const text = `${what} in the last ${Math.round(span / 60000)} minutes: ${low === high ? count(high) : `${count(low)} to ${count(high)}`}`;
  attribute(line.parentNode, "aria-label", text);
  attribute($(id), "title", text);
}
