// What the other modules make and change elements with. Text is only ever set as
// text: ids, labels and keys come from strangers.

export const $ = (id) => document.getElementById(id);

// h makes an element. A property that begins with "on" is a listener, "class" and
// "text" are what they say, everything else is an attribute; false and null are none.
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

// say sets a text if it is another one, so that what did not change is neither
// laid out nor read out again.
export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// eachFrame returns what asks for f, which then runs once with the next frame
// however often it is asked for.
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

// fill sets a select's options, [value, text] each, and keeps what is selected.
export function fill(select, options) {
  const same = select.length === options.length &&
    options.every(([value, text], i) => select.options[i].value === value && select.options[i].text === text);
  if (same) return;
  const value = select.value;
  select.replaceChildren(...options.map(([value, text]) => h("option", { value, text })));
  select.value = options.some(([v]) => v === value) ? value : options[0]?.[0] ?? "";
}

// swatch is a square in a node's colour. The style is set by script, since the
// policy of this page forbids style attributes.
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

// span says how long something takes or is ago, shortly.
export function span(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${Math.round(s / 3600)} h`;
}

export const clock = (date) => date.toLocaleTimeString("en-GB");
