// SPDX-License-Identifier: Apache-2.0
// Moves a client to the node that serves its room now: the Machine and the Driver of the
// Go package reconnect, for browsers and Node.js, without dependencies. The states and
// the waits are in cluster/affinity/reconnect/doc.go. Times are in milliseconds.
//
//   const driver = new Driver({
//     connect: async (directive, signal) => { … }, // throws a Refused if nothing listens
//     resolve: async (room, signal) => directive,
//   });
//   await driver.lost({ room: "standup" });        // join
//   await driver.follow(directive);                // each directive that arrives
//   await driver.lost(directive);                  // the connection to it is lost
//   driver.close();                                // the user leaves the room
//
// The signal aborts after news of another node, after the time of the step, and by close.
// The step has ended then: a connection that is made later is not the client's.
//
// A directive is {room, to, addr, reason, epoch}, as in the JSON of roost.

export const Step = Object.freeze({ none: 0, connect: 1, resolve: 2, done: 3 });

// Refused says that a target did not accept the client.
export class Refused extends Error {}

// GaveUp is the end of a failed migration; cause is why the last step failed.
export class GaveUp extends Error {
  constructor(room, attempts, cause) {
    super(`gave up reconnecting to room ${room} after ${attempts} attempts; resolve the room again`, { cause });
    this.room = room;
    this.attempts = attempts;
  }
}

export const defaults = Object.freeze({
  attempts: 3, minWait: 3000, maxWait: 5000, spread: 500, minAsk: 100, maxAsk: 250, askFor: 15_000,
});

// paced returns a whole pace. A value that is not positive is the default, as in Go.
function paced(given) {
  const p = { ...defaults };
  for (const name in defaults) if (given?.[name] > 0) p[name] = given[name];
  p.maxWait = Math.max(p.maxWait, p.minWait);
  p.maxAsk = Math.max(p.maxAsk, p.minAsk);
  return p;
}

// normal returns d with the fields that the machine reads.
const normal = (d) => ({ ...d, to: d.to || "", epoch: Number(d.epoch) || 0 });

const between = (lo, hi, u) => lo + Math.floor(u * (hi - lo));

// Machine decides when to ask and when to connect. Methods take the time and a random
// number in [0, 1).
export class Machine {
  #pace;
  #state = "idle";
  #target = { room: "", to: "", epoch: 0 };
  #epoch = 0;
  #err = null;
  #connecting = false;
  #allowed = false;
  #earliest = 0;
  #spread = 0;
  #began = null;
  #tries = 0;
  #tried = "";
  #refused = false;
  #refusals = 0;
  #attempts = 0;
  #turns = 0;
  #hold = 0;
  #asking = false;
  #doubt = false;
  #asked = -Infinity;
  #askAt = 0;
  #checkAt = null;
  #deadline = null;

  constructor(pace = {}) { this.#pace = paced(pace); }

  get target() { return this.#target; }
  get attempts() { return this.#attempts; }
  get err() { return this.#err; }
  get idle() { return this.#state === "idle"; }
  get over() { return this.#state === "connected" || this.#state === "gave up"; }
  get connecting() { return this.#connecting; }
  get asking() { return this.#asking; }

  // directed takes a directive and returns whether it is news: the caller then abandons
  // the steps in progress.
  directed(now, u, given) {
    const d = normal(given);
    const again = this.idle || (this.#state === "gave up" && d.epoch === this.#epoch);
    if (!d.to || (!this.idle && d.room !== this.#target.room) || (!again && !this.#newer(d))) return false;
    this.#restart();
    this.#asking = false;
    this.#deadline = null;
    this.#spread = now + between(0, this.#pace.spread, u);
    this.#aim(this.#spread, d);
    return true;
  }

  // lost takes the loss of the connection to d, and returns whether that is the present
  // one. A client without a connection passes a directive with no more than a room.
  lost(now, u, given) {
    const d = normal(given);
    if (this.idle) {
      this.#target = d;
      this.#epoch = d.epoch;
    } else if (d.room !== this.#target.room) {
      return false;
    } else if (this.#state !== "gave up" &&
      (this.#state !== "connected" || d.to !== this.#target.to || d.epoch !== this.#target.epoch)) {
      return false;
    }
    const p = this.#pace;
    const short = this.#state === "connected" && now - this.#began < p.maxWait;
    if (short && this.#tries > p.attempts) {
      this.#giveUp(new Error("connection lost soon after it was made"));
      return true;
    }
    if (!short) {
      this.#restart();
      this.#tries = this.#turns = 0;
    }
    this.#state = "seeking";
    this.#refusals = 0;
    this.#allowed = this.#asking = false;
    this.#checkAt = null;
    this.#doubt = true;
    this.#askAt = now;
    this.#deadline = now + p.askFor;
    this.#spread = now + between(0, p.spread, u);
    this.#earliest = this.#paused(this.#spread, this.#target.to);
    if (short) {
      this.#earliest = now + between(p.minWait, p.maxWait, u);
      this.#exhaust();
    }
    return true;
  }

  // next returns [step, wait]. Without a wait the step has begun.
  next(now) {
    if (this.idle) return [Step.none, 0];
    if (this.over) return [Step.done, 0];
    if (this.#state === "seeking") this.#endDoubt(now);
    const [step, at] = this.#due();
    if (step === Step.none) return [step, 0];
    if (at > now) return [step, at - now];
    if (step === Step.connect) {
      this.#connecting = true;
      this.#tried = this.#target.to;
      this.#refused = false;
      this.#began = now;
      this.#tries++;
      this.#attempts++;
    } else {
      this.#asking = true;
      this.#asked = now;
    }
    return [step, 0];
  }

  connected() {
    if (!this.#connecting) return;
    this.#state = "connected";
    this.#connecting = this.#asking = false;
  }

  // refused: the target of the attempt in progress did not accept the client.
  refused(now, u, err) {
    if (!this.#endAttempt(err)) return;
    const p = this.#pace;
    this.#tries--;
    this.#refusals++;
    this.#refused = true;
    this.#allowed = false;
    this.#earliest = now + this.#refusedWait(this.#refusals, u);
    this.#deadline ??= now + p.askFor;
    if (now >= this.#deadline) {
      this.#checkAt = now;
    } else if (!this.#doubt) {
      this.#doubt = true;
      this.#askAt = now;
    }
  }

  // failed: the attempt in progress failed after the target had accepted it.
  failed(now, u, err) {
    if (!this.#endAttempt(err)) return;
    this.#refusals = 0;
    this.#earliest = this.#hold = now + between(this.#pace.minWait, this.#pace.maxWait, u);
    this.#exhaust();
  }

  // resolved takes the answer of the resolve in progress, and returns whether it is news:
  // the caller then abandons an attempt in progress.
  resolved(now, u, given) {
    if (!this.#asking) return false;
    const d = { ...normal(given), room: this.#target.room };
    if (!d.to) {
      this.unresolved(now, u, new Error("directive names no node"));
      return false;
    }
    const same = d.to === this.#target.to;
    if (this.#state === "checking") {
      this.#asking = false;
      this.#state = "trying";
      this.#target = d;
      this.#epoch = Math.max(this.#epoch, d.epoch);
      this.#allowed = true;
      this.#earliest = now;
      this.#tries = this.#pace.attempts;
      return true;
    }
    if (d.epoch > this.#epoch) {
      this.#deadline = null;
    } else if (same || (d.epoch !== 0 && !this.#newer(d)) || this.#held(now)) {
      this.#allowed ||= same && this.#checkAt === null;
      this.#askAgain(now, u);
      return false;
    }
    const turns = d.epoch > this.#epoch ? 0 : this.#turns + 1;
    this.#asking = false;
    this.#aim(Math.max(now, this.#spread), d);
    this.#turn(now, u, turns);
    return true;
  }

  unresolved(now, u, err) {
    if (!this.#asking) return;
    this.#asking = false;
    if (this.#state === "checking") {
      this.#giveUp(err);
      return;
    }
    this.#allowed ||= this.#target.to !== "" && this.#checkAt === null;
    this.#askAgain(now, u);
  }

  // turn makes the nth turn in a row to another node without a greater epoch. From the
  // second one on the target has a pause before its first attempt.
  #turn(now, u, n) {
    this.#turns = n;
    if (n < 2) return;
    this.#hold = now + this.#refusedWait(n - 1, u);
    this.#earliest = Math.max(this.#earliest, this.#hold);
    this.#doubt = true;
    this.#askAgain(now, u);
  }

  // held returns whether only a greater epoch may change the target.
  #held(now) { return this.#turns > 1 && (this.#connecting || now < this.#hold); }

  // refusedWait returns the wait after the nth refusal in a row: it doubles up to maxWait.
  #refusedWait(n, u) {
    const p = this.#pace;
    let wait = p.maxAsk;
    for (let i = 1; i < n && wait < p.maxWait; i++) wait *= 2;
    wait = Math.min(wait, p.maxWait);
    return between(Math.floor(wait / 2), wait, u);
  }

  #endAttempt(err) {
    if (!this.#connecting) return false;
    this.#connecting = false;
    if (this.#state !== "trying") return true;
    this.#giveUp(err);
    return false;
  }

  #endDoubt(now) {
    if (this.#doubt && now >= this.#deadline) {
      this.#doubt = false;
      if (!this.#connecting && !this.#allowed) this.#checkAt ??= now;
    }
    if (this.#checkAt !== null && now >= this.#checkAt) {
      this.#state = "checking";
      this.#doubt = this.#allowed = false;
      this.#askAt = now;
    }
  }

  #due() {
    let step = Step.none;
    let at = 0;
    const consider = (s, t) => { if (step === Step.none || t < at) [step, at] = [s, t]; };
    if ((this.#doubt || this.#state === "checking") && !this.#asking) {
      consider(Step.resolve, Math.max(this.#askAt, this.#asked + this.#pace.minAsk));
    }
    if (this.#allowed && !this.#connecting) consider(Step.connect, this.#earliest);
    if (this.#state === "seeking" && this.#checkAt !== null) consider(Step.resolve, this.#checkAt);
    return [step, at];
  }

  #newer(d) {
    return d.epoch > this.#epoch ||
      (this.#target.epoch === 0 && d.to !== this.#target.to && d.epoch === this.#epoch);
  }

  #askAgain(now, u) {
    this.#asking = false;
    this.#askAt = Math.min(now + between(this.#pace.minAsk, this.#pace.maxAsk, u), this.#deadline ?? 0);
  }

  #aim(at, d) {
    at = this.#paused(at, d.to);
    this.#state = "seeking";
    this.#target = d;
    this.#epoch = Math.max(this.#epoch, d.epoch);
    this.#connecting = this.#doubt = false;
    this.#allowed = true;
    this.#earliest = at;
    this.#tries = this.#refusals = this.#turns = 0;
    this.#checkAt = null;
  }

  #paused(at, to) {
    if (to !== this.#tried || this.#refused || this.#began === null) return at;
    return Math.max(at, this.#began + this.#pace.minWait);
  }

  #exhaust() {
    if (this.#tries < this.#pace.attempts) return;
    this.#allowed = false;
    this.#checkAt = this.#earliest;
  }

  #restart() {
    if (!this.over) return;
    this.#attempts = 0;
    this.#err = null;
  }

  #giveUp(err) {
    this.#state = "gave up";
    this.#err = new GaveUp(this.#target.room, this.#attempts, err);
  }
}

// Driver runs a Machine on real time. Use one for each room.
export class Driver {
  #machine;
  #connect;
  #resolve;
  #attemptTimeout;
  #steps = new Set();
  #timer;
  #waiting = [];
  #closed = null;

  constructor({ connect, resolve, pace, attemptTimeout = 10_000 }) {
    this.#connect = connect;
    this.#resolve = resolve;
    this.#attemptTimeout = attemptTimeout;
    this.#machine = new Machine(pace);
  }

  // follow connects the client to the node of d or of newer news. Old news changes
  // nothing. It rejects with a GaveUp, with an AbortError after close, and if d is for
  // another room.
  async follow(d) {
    if (!d.to) throw new Error("directive names no node");
    return this.#join(d, (now, u) => this.#machine.directed(now, u, d));
  }

  // lost moves the client after it lost the connection that it made to d; with {room}
  // alone it joins the room.
  async lost(d) { return this.#join(d, (now, u) => this.#machine.lost(now, u, d)); }

  // close ends the Driver: it aborts the steps in progress and starts no other, and each
  // call rejects. A connection that is made already stays.
  close() {
    this.#closed ??= new DOMException("the driver is closed", "AbortError");
    clearTimeout(this.#timer);
    for (const s of this.#steps) this.#abandon(s, this.#closed);
    for (const w of this.#waiting.splice(0)) w.fail(this.#closed);
  }

  #join(d, report) {
    const m = this.#machine;
    if (this.#closed) throw this.#closed;
    if (!m.idle && d.room !== m.target.room) throw new Error("directive is for another room; use one Driver for each room");
    report(performance.now(), Math.random());
    return new Promise((done, fail) => {
      this.#waiting.push({ done, fail });
      this.#run();
    });
  }

  #abandon(s, reason) {
    s.abandoned = true;
    s.control.abort(reason);
  }

  // run starts the steps that are due, after the abandoned ones have ended.
  #run() {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    const m = this.#machine;
    for (const s of this.#steps) {
      if (!s.abandoned && !(s.kind === Step.connect ? m.connecting : m.asking)) this.#abandon(s);
    }
    while (![...this.#steps].some((s) => s.abandoned)) {
      const [step, wait] = m.next(performance.now());
      if (step === Step.done) {
        for (const w of this.#waiting.splice(0)) m.err ? w.fail(m.err) : w.done();
        return;
      }
      if (wait > 0) this.#timer = setTimeout(() => this.#run(), Math.ceil(wait));
      if (step === Step.none || wait > 0) return;
      this.#start(step, m.target);
    }
  }

  // start carries out a step, until it returns or is aborted.
  async #start(kind, target) {
    const s = { kind, control: new AbortController(), abandoned: false };
    const signal = s.control.signal;
    this.#steps.add(s);
    const longest = kind === Step.resolve ? Math.min(2000, this.#attemptTimeout) : this.#attemptTimeout;
    const timeout = setTimeout(() => s.control.abort(new DOMException(`no end within ${longest} ms`, "TimeoutError")), longest);
    let found, err;
    try {
      await null; // so that #run ends first
      signal.throwIfAborted();
      const aborted = new Promise((_, fail) => { signal.addEventListener("abort", () => fail(signal.reason)); });
      const outcome = kind === Step.connect ? this.#connect(target, signal) : this.#resolve(target.room, signal);
      found = await Promise.race([outcome, aborted]);
    } catch (e) {
      err = e ?? new Error("unknown");
    }
    clearTimeout(timeout);
    this.#steps.delete(s);
    if (!s.abandoned) this.#report(kind, found, err);
    this.#run();
  }

  #report(kind, found, err) {
    const [m, now, u] = [this.#machine, performance.now(), Math.random()];
    if (kind === Step.resolve) err ? m.unresolved(now, u, err) : m.resolved(now, u, found ?? {});
    else if (!err) m.connected();
    else if (err instanceof Refused || err.cause?.code === "ECONNREFUSED") m.refused(now, u, err);
    else m.failed(now, u, err);
  }
}
