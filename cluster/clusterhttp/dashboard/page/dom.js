// Functions that create and change elements. They set text only as text, never as markup:
// ids, labels and keys are untrusted.

export const $ = (id) => document.getElementById(id);

// h creates an element. A property that starts with "on" is a listener, "class" and "text"
// set class and text, and other properties are attributes unless false or null.
export function h(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value == null) continue;
    if (name === "text") e.textContent = value;
    else if (name === "class") e.className = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children);
  return e;
}

// say sets a text if it differs: an unchanged text is neither laid out nor announced again.
export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// eachFrame returns a function that schedules f for the next frame; several calls run f
// once.
export function eachFrame(f) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame((now) => {
      asked = false;
      f(now);
    });
  };
}

export function attribute(e, name, value) {
  if (value == null) e.removeAttribute(name);
  else if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

// fill sets a select's options, [value, text] each, and keeps the selection.
export function fill(select, options) {
  const same = select.length === options.length &&
    options.every(([value, text], i) => select.options[i].value === value && select.options[i].text === text);
  if (same) return;
  const value = select.value;
  select.replaceChildren(...options.map(([value, text]) => h("option", { value, text })));
  select.value = options.some(([v]) => v === value) ? value : options[0]?.[0] ?? "";
}

// swatch is a square in a node's colour. A script sets the style, because the policy of
// this page forbids style attributes.
export function swatch(color) {
  const e = h("span", { class: "swatch", "aria-hidden": "true" });
  paint(e, color);
  return e;
}

export function paint(e, color) {
  e.style.setProperty("--color", color);
}

// byName sorts node-2 before node-10.
export const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });

const numbers = new Intl.NumberFormat("en");
export const count = (n) => numbers.format(n);
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

// span formats a duration.
export function span(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

// ago formats a duration until now.
export const ago = (ms) => (ms < 1000 ? "just now" : `${span(ms)} ago`);

export const clock = (date) => date.toLocaleTimeString("en-GB");
