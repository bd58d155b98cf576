// Keeps a model up to date: changes come over the event stream at once; what the
// stream does not carry, such as the age of leases, is asked for every second.

import { get } from "./api.js";
import { plural } from "./dom.js";

const every = 1000; // ms between two questions
const soon = 80; // ms after an event, so that a burst of them makes one question
const waits = [500, 1000, 2000, 4000, 8000]; // ms, after so many failures
const backOff = (failures) => waits[Math.min(failures, waits.length) - 1] * (0.75 + 0.5 * Math.random());

export class Feed {
  #model;
  #epoch = 0; // counts events: an answer from before one is out of date
  #digest = ""; // of the table as it was last fetched
  #rooms = 0; // that moved since it was last told
  #wake = () => {};

  constructor(model) { this.#model = model; }

  start() {
    this.#poll();
    this.#stream();
  }

  // now asks at once, for whoever has just changed something.
  now() { this.#wake(); }

  async #poll() {
    for (let failures = 0; ; ) {
      const epoch = this.#epoch;
      try {
        await this.#ask(epoch);
        failures = 0;
        this.#model.heard();
      } catch (e) {
        failures++;
        this.#model.fault = e.message;
      }
      this.#tellRooms();
      const wait = failures ? backOff(failures) : this.#epoch !== epoch ? soon : every;
      this.#model.retry = Date.now() + wait;
      this.#model.tell("link");
      const woken = await this.#pause(wait);
      if (woken) await new Promise((done) => setTimeout(done, soon));
    }
  }

  async #ask(epoch) {
    const members = await get("v1/members");
    if (epoch !== this.#epoch) return;
    let table = null;
    if (members.digest !== this.#digest) {
      table = await get("v1/partitions");
      if (epoch !== this.#epoch) return;
    }
    this.#model.setMembers(members);
    if (!table) return;
    this.#digest = table.digest;
    this.#model.setTable(table);
  }

  // tellRooms makes one entry of what came in many events.
  #tellRooms() {
    if (this.#rooms) this.#model.note("moved", this.#rooms === Infinity ? "many rooms moved" : `${plural(this.#rooms, "room")} moved`);
    this.#rooms = 0;
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms, false);
      this.#wake = () => { clearTimeout(timer); done(true); };
    });
  }

  // EventSource comes back by itself, but gives up for good when it is turned away
  // once, as by an agent that is joining; so it is made anew instead.
  #stream(failures = 0) {
    const source = new EventSource("v1/events");
    let first = true;
    source.addEventListener("batch", (e) => {
      this.#epoch++;
      this.#digest = ""; // the balance has changed with the table
      this.#model.streaming = true;
      this.#model.heard();
      if (!first) this.#model.apply(JSON.parse(e.data));
      first = false; // it tells what is, and the questions tell that as well
      failures = 0;
      this.#wake();
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
