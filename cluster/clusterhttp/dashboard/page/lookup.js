// The node of a key or a room, and the reason.

import { get, Refused, roomPath } from "./api.js";
import { $, count, h, say, swatch } from "./dom.js";
import { lastTable } from "./model.js";
import { shorten } from "./more.js";
import { colorOf } from "./palette.js";

const ranked = 5; // members to show of a key's ranking
const next = 3; // further nodes to show of a room
const settled = 500; // ms after a change, until its effects are available

export class Lookup {
  #show; // moves the map's cursor to a partition, and with true shows the map
  #asked = 0; // number of the last call: an earlier call must not replace a later one
  #shown = null; // kind and name of the last lookup
  #due = false; // a repeat is scheduled
  #stale = false; // of the model, which may know of a stall a heartbeat earlier than an answer

  constructor(model, show) {
    this.#show = show;
    const kind = $("lookup-kind");
    kind.hidden = !("rooms" in document.documentElement.dataset);
    kind.addEventListener("change", () => {
      const room = kind.value === "room";
      $("lookup-name").placeholder = room ? "such as stand-up" : "such as user-42";
      $("lookup-name").setAttribute("aria-label", room ? "Room to look up" : "Key to look up");
    });
    $("lookup").addEventListener("submit", async (e) => {
      e.preventDefault();
      this.#shown = [kind.value, $("lookup-name").value];
      const partition = await this.#ask();
      if (partition !== undefined) this.#show(partition);
    });
    model.listen((what) => {
      const turned = model.stale !== this.#stale; // a stall is no event
      this.#stale = model.stale;
      if ((what === "log" || turned) && this.#shown) this.#again();
    });
  }

  // again repeats the lookup in a moment: a change may have changed its result.
  #again() {
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => {
      this.#due = false;
      this.#ask(true);
    }, settled);
  }

  // ask looks up. If the connection fails during a repeat, the previous result stays: the
  // page has a notice that its data is outdated.
  async #ask(byItself = false) {
    const asked = ++this.#asked;
    const [kind, name] = this.#shown;
    let answer;
    try {
      answer = kind === "room" ? room(await get(roomPath(name))) : key(await get(`v1/owners?n=${ranked}&key=${encodeURIComponent(name)}`), this.#stale);
    } catch (e) {
      if (byItself && !(e instanceof Refused)) return undefined;
      answer = { parts: [h("p", { class: "result", "data-level": "bad", text: e.message })] };
    }
    if (asked !== this.#asked) return undefined;
    this.#render(answer);
    return answer.partition;
  }

  #render({ parts, partition }) {
    const said = parts.slice(0, 2).map((e) => e.textContent).join(". "); // without the candidates
    if (partition !== undefined) {
      parts[0].querySelector(".partition").addEventListener("click", () => {
        this.#show(partition, true);
      });
    }
    const details = () => $("lookup-answer").querySelector("details");
    const focused = $("lookup-answer").contains(document.activeElement);
    const whole = $("lookup-answer").querySelector(".whole") !== null;
    const before = details(), inDetails = before?.contains(document.activeElement);
    $("lookup-answer").replaceChildren(...parts);
    keepOpen(before, details());
    $("lookup-answer").querySelector(".long")?.classList.toggle("whole", whole);
    if (focused) ((inDetails && details()?.firstChild) || $("lookup-answer").querySelector(".partition"))?.focus();
    say($("lookup-said"), said);
  }
}

const node = (id) => h("span", { class: "node" }, swatch(colorOf(id)), h("strong", { text: id }));
const where = (partition) => h("button", { type: "button", class: "partition plain", title: "Show it on the map", text: `partition ${partition}` });

function key(a, stale) {
  const [owner, ...rest] = a.owners;
  return {
    partition: a.partition,
    parts: [
      h("p", { class: "verdict" }, owner ? node(owner.id) : "nobody", " owns ", h("q", { text: a.key }), ", in ", where(a.partition)),
      h("p", { class: "why", text: [(a.stale || stale) && lastTable, a.why].filter(Boolean).join(" ") }),
      rest.length ? h("h3", { text: "Without it" }) : "",
      h("ol", { class: "ranking", start: "2" }, ...rest.map((m) => h("li", {}, node(m.id), h("span", { class: "note", text: m.state === "active" ? m.zone : m.state })))),
    ],
  };
}

// relays shows the next nodes for a room that outgrows its own. It asks for them when it is opened,
// because a metric counts the questions.
function relays(name) {
  const answer = h("p", { class: "relays" });
  return h("details", { "data-room": name, ontoggle: async ({ target }) => {
    if (!target.open) return;
    try {
      const { relays } = await get(`${roomPath(name)}/relays?n=${next}`);
      answer.replaceChildren(...relays.map((m) => node(m.id)), relays.length ? "" : "No further node takes rooms.");
    } catch (e) {
      answer.replaceChildren(e.message);
    }
  } }, h("summary", { text: "Relays, if it outgrows its node" }), answer);
}

// keepOpen opens the relays of a room again, with those of the previous answer until the new ones arrive.
function keepOpen(before, after) {
  if (!before?.open || before.dataset.room !== after?.dataset.room) return;
  after.lastChild.replaceChildren(...before.lastChild.childNodes);
  after.open = true;
}

function room(a) {
  const at = a.node?.id;
  const candidates = h("ol", { class: "ranking" }, ...a.candidates.map((c) => h("li", { class: c.taken ? "taken" : "" }, node(c.id),
    h("span", { class: "note", text: room.load(c) }), h("span", { class: "because", text: `${c.taken ? "✓ " : ""}${c.why}` }))));
  const facts = [a.source && `by ${a.source}`, a.epoch && `epoch ${a.epoch}`, a.hosted && "hosted by this agent"].filter(Boolean);
  return {
    partition: a.partition,
    parts: [
      h("p", { class: "verdict" }, "Room ", h("q", { text: a.room }), a.pinned ? " is pinned to " : at ? " is not pinned; it would go to " : " is not pinned and has no node",
        at ? node(at) : "", ", in ", where(a.partition)),
      h("p", { class: "why", text: [a.reason, ...facts].filter(Boolean).join("; ") }),
      h("h3", { text: "Candidates, best first" }),
      h("div", { class: "scroll low", tabindex: "0", role: "region", "aria-label": "Candidates" }, candidates),
      shorten(candidates, "candidates"),
      relays(a.room),
    ],
  };
}

room.load = (c) => `${count(c.load)}${c.reserved ? ` + ${count(c.reserved)} reserved` : ""}${c.ceiling ? ` of ${count(c.ceiling)}` : ""}`;
