// The rooms of one node, which can be moved and released.

import { get, post, remove, roomPath } from "./api.js";
import { $, attribute, byName, count, fill, h, plural, say } from "./dom.js";
import { askForToken, confirmed, unauthorized } from "./operate.js";

const most = 200; // rooms to show

export class RoomList {
  #model;
  #id = ""; // of the node
  #asked = 0; // number of the last call: an earlier answer must not replace a later one

  constructor(model) {
    this.#model = model;
    $("rooms").hidden = false;
    $("rooms-list").addEventListener("click", () => this.#list());
  }

  // show prepares for the rooms of a node. A list costs the store a query for each partition, so
  // a button requests it.
  show(id) {
    this.#id = id;
    this.#asked++;
    $("rooms-table").hidden = true;
    $("rooms-body").replaceChildren();
    say($("rooms-note"), "");
    result("", "");
  }

  async #list() {
    const asked = ++this.#asked;
    say($("rooms-note"), "asking the store …");
    let answer;
    try {
      answer = await get(`v1/rooms?node=${encodeURIComponent(this.#id)}&limit=10000`, 15000);
    } catch (e) {
      if (asked === this.#asked) say($("rooms-note"), e.message);
      return;
    }
    if (asked !== this.#asked) return;
    const rooms = answer.rooms.sort((a, b) => b.size - a.size || byName(a.room, b.room));
    const people = rooms.reduce((sum, r) => sum + r.size, 0);
    say($("rooms-note"), `${plural(rooms.length, "room")}${answer.truncated ? " or more" : ""}, ${plural(people, "participant")}${rooms.length > most ? `; the ${most} largest are listed` : ""}`);
    const others = this.#model.members.filter((m) => m.id !== this.#id && m.state === "active").map((m) => m.id).sort(byName);
    fill($("rooms-to"), others.map((id) => [id, id]));
    $("rooms-to-label").hidden = !others.length || !rooms.length;
    $("rooms-table").hidden = !rooms.length;
    $("rooms-body").replaceChildren(...rooms.slice(0, most).map((r) => h("tr", {}, h("th", { scope: "row", text: r.room }), h("td", { text: count(r.size) }),
      h("td", {}, others.length ? h("button", { type: "button", "aria-label": `Move ${r.room}`, text: "Move", onclick: () => this.#move(r) }) : "",
        h("button", { type: "button", "aria-label": `Release ${r.room}`, text: "Release", onclick: () => this.#release(r) })))));
  }

  #move({ room, size }) {
    const to = $("rooms-to").value;
    return this.#do(`Move ${room} to ${to}?`, `Its ${plural(size, "participant")} are led to ${to}.`, "Move", `${room} moved to ${to}`, () => post(`${roomPath(room)}/move`, { to }));
  }

  #release({ room, size }) {
    return this.#do(`Release ${room}?`, `Its pin is deleted. ${size ? `${plural(size, "participant")} may still be in it: release it if it has ended.` : "The next join may place it elsewhere."}`,
      "Release", `${room} is released`, () => remove(roomPath(room)));
  }

  async #do(title, text, yes, done, call) {
    if (!(await confirmed(title, text, yes))) return;
    try {
      await call();
      result("good", done);
    } catch (e) {
      if (unauthorized(e)) {
        $("node").close();
        askForToken();
        return;
      }
      result("bad", e.message);
    }
    await this.#list();
  }
}

function result(level, text) {
  attribute($("rooms-result"), "data-level", level || null);
  say($("rooms-result"), text);
}
