// Which page has the event stream. A browser opens six connections to a server of HTTP/1, for all of its windows together, and
// a stream keeps one of them. So only the page that was shown or focused last has a stream, and the others poll.

const channel = new BroadcastChannel(`roost ${location.pathname}`); // an origin may have several agents, below prefixes
const apart = 300; // ms, within which the visible pages take a turn that is free

export class Turn {
  #at = null; // when this page took the turn, and a number that differs from those of other pages; null: it has no turn
  #heard = false; // that another page took the turn, since it was free
  #changed;

  // changed is called when this page gets or loses the turn, and when it is shown.
  constructor(changed) {
    this.#changed = changed;
    channel.addEventListener("message", ({ data }) => this.#hear(data));
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#free() : this.#take()));
    addEventListener("focus", () => this.#take());
    addEventListener("pagehide", () => this.#free());
    addEventListener("pageshow", () => this.#take());
  }

  get mine() { return this.#at !== null; }

  #take() {
    if (document.hidden) return;
    this.#at = [Date.now(), Math.random()];
    channel.postMessage(this.#at);
    this.#changed();
  }

  #free() {
    if (!this.mine) return;
    this.#at = null;
    channel.postMessage(null);
    this.#changed();
  }

  // hear is called when another page takes the turn, or frees it. Of two pages that take it at the same moment, both
  // know which one was later.
  #hear(at) {
    if (at === null) {
      this.#heard = false;
      setTimeout(() => { if (!this.#heard && !this.mine) this.#take(); }, apart * Math.random());
      return;
    }
    this.#heard = true;
    if (!this.mine || at[0] < this.#at[0] || (at[0] === this.#at[0] && at[1] < this.#at[1])) return;
    this.#at = null;
    this.#changed();
  }
}
