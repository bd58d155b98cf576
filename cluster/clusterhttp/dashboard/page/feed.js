// Keeps a model up to date: the event stream delivers changes immediately, and a poll every
// second the rest, such as the age of leases. A page without a stream only polls.

import { get } from "./api.js";
import { Turn } from "./turn.js";

const every = 1000; // ms between two polls
const hidden = 10_000; // ms between two polls of a hidden page, whose title shows the findings
const rarely = 5000; // ms between two responses of /v1/history without a change
const soon = 200; // ms after an event, so that a burst of events causes few polls
const waits = [500, 1000, 2000, 3000]; // ms, by the number of failures
const backOff = (failures) => waits[Math.min(failures, waits.length) - 1] * (0.75 + 0.5 * Math.random());

export class Feed {
  #model;
  #digest = ""; // of the last table; "" after a change
  #seen = ""; // members, as the last history has them
  #remembered = 0; // ms, time of the last history
  #due = false; // poll again soon
  #wake = () => {};
  #turn;
  #source = null; // the event stream
  #failures = 0; // of streams in a row

  constructor(model) { this.#model = model; }

  start() {
    this.#poll();
    this.#turn = new Turn(() => {
      this.#model.front = this.#turn.mine;
      this.#stream();
      this.now();
    });
  }

  // now polls soon, after a change.
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
        this.#model.problem = e.message;
      }
      const wait = failures ? backOff(failures) : document.hidden ? hidden : every;
      this.#model.retry = Date.now() + wait;
      this.#model.emit("link");
      await this.#pause(wait);
    }
  }

  async #ask() {
    const members = await get("v1/members");
    this.#model.setMembers(members);
    if (members.digest !== this.#digest) {
      const table = await get("v1/partitions");
      if (this.#model.setTable(table)) this.#digest = table.digest;
    }
    this.#model.setStats(await get("v1/stats"));
    const seen = JSON.stringify([members.version, members.self, members.lost?.length, members.members.map((m) => [m.id, m.incarnation, m.state, m.weight])]);
    if (seen === this.#seen && Date.now() - this.#remembered < rarely) return;
    this.#model.setHistory(await get("v1/history"));
    this.#seen = seen;
    this.#remembered = Date.now();
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

  // EventSource reconnects by itself, but gives up after one rejection, as from an agent
  // that is joining; so each attempt has a new one. A stream may start with everything,
  // with the changes since an earlier stream, or with nothing. It ends with the turn of this page.
  #stream() {
    if (!this.#turn.mine) {
      this.#close();
      return;
    }
    if (this.#source) return;
    const source = new EventSource("v1/events");
    this.#source = source;
    source.addEventListener("open", () => {
      this.#failures = 0;
      this.#model.streaming = true;
      this.now();
    });
    source.addEventListener("batch", (e) => {
      this.#digest = "";
      this.#model.heard();
      this.#model.apply(JSON.parse(e.data));
      this.now();
    });
    // The history has the moves of rooms: the next poll asks for it. There may be many of these
    // events, so they cause no poll of their own.
    source.addEventListener("moved", () => { this.#remembered = 0; });
    source.addEventListener("error", () => {
      this.#close();
      this.#failures++;
      setTimeout(() => this.#stream(), backOff(this.#failures));
    });
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    this.#model.streaming = false;
    this.#model.emit("link");
  }
}
