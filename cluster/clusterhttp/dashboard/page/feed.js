// Keeps a model up to date: changes come over the event stream at once; what the
// stream does not carry, such as the age of leases, is asked for every second.

import { get } from "./api.js";
import { plural } from "./dom.js";

const every = 1000; // ms between two questions
const soon = 200; // ms after an event, so that a burst of them makes few questions
const waits = [500, 1000, 2000, 3000]; // ms, after so many failures
const backOff = (failures) => waits[Math.min(failures, waits.length) - 1] * (0.75 + 0.5 * Math.random());

export class Feed {
  #model;
  #digest = ""; // of the table as it was last fetched; "" since it has changed
  #rooms = 0; // that moved since it was last told
  #due = false; // there is a reason to ask again soon
  #wake = () => {};

  constructor(model) { this.#model = model; }

  start() {
    this.#poll();
    this.#stream();
  }

  // now asks soon, since something has changed.
  now() {
    this.#due = true;
    this.#wake();
  }

  async #poll() {
    for (let failures = 0; ; ) {
      this.#due = false;
      try {
        await this.#ask();
        failures = 0;
        this.#model.heard();
      } catch (e) {
        failures++;
        this.#model.fault = e.message;
      }
      this.#tellRooms();
      const wait = failures ? backOff(failures) : every;
      this.#model.retry = Date.now() + wait;
      this.#model.tell("link");
      await this.#pause(wait);
    }
  }

  async #ask() {
    const members = await get("v1/members");
    this.#model.setMembers(members);
    if (members.digest === this.#digest) return;
    const table = await get("v1/partitions");
    if (this.#model.setTable(table)) this.#digest = table.digest;
  }

  // tellRooms makes one entry of what came in many events.
  #tellRooms() {
    if (this.#rooms) this.#model.note("moved", this.#rooms === Infinity ? "many rooms moved" : `${plural(this.#rooms, "room")} moved`);
    this.#rooms = 0;
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, this.#due ? soon : ms);
      this.#wake = () => {
        clearTimeout(timer);
        setTimeout(done, soon);
      };
    });
  }

  // EventSource comes back by itself, but gives up for good when it is turned away
  // once, as by an agent that is joining; so it is made anew instead. It may begin with
  // all there is, with what has changed since an earlier one, or with nothing.
  #stream(failures = 0) {
    const source = new EventSource("v1/events");
    source.addEventListener("open", () => {
      failures = 0;
      this.#model.streaming = true;
      this.now();
    });
    source.addEventListener("batch", (e) => {
      this.#digest = "";
      this.#model.heard();
      this.#model.apply(JSON.parse(e.data));
      this.now();
    });
    source.addEventListener("moved", (e) => {
      const { moved, resync } = JSON.parse(e.data);
      this.#rooms = resync ? Infinity : this.#rooms + moved.length;
    });
    source.addEventListener("error", () => {
      source.close();
      this.#model.streaming = false;
      this.#model.tell("link");
      setTimeout(() => this.#stream(failures + 1), backOff(failures + 1));
    });
  }
}
