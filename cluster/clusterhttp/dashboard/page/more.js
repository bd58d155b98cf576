// On a phone, a long list shows its beginning and a button for the rest. A list that scrolls by itself would catch the
// thumb that scrolls the page.

import { count, h, say } from "./dom.js";

const beginning = 10; // as in parts.css

// shorten makes a list such a list, and returns the button.
export function shorten(list, what) {
  const button = h("button", { type: "button", class: "more", onclick: () => list.classList.toggle("whole") });
  const render = () => {
    button.hidden = list.children.length <= beginning;
    say(button, list.classList.contains("whole") ? `Show the first ${beginning}` : `Show all ${count(list.children.length)} ${what}`);
  };
  list.classList.add("long");
  new MutationObserver(render).observe(list, { childList: true, attributeFilter: ["class"] });
  render();
  return button;
}
