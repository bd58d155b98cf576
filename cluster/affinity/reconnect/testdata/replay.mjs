// Replays histories.json with the machine of reconnect.mjs, and runs its driver once.
import { readFileSync } from "node:fs";
import assert from "node:assert";
import { Driver, GaveUp, Machine, Refused, defaults } from "../reconnect.mjs";

const histories = JSON.parse(readFileSync(new URL("histories.json", import.meta.url)));
for (const [n, history] of histories.entries()) {
  const m = new Machine();
  for (const [i, line] of history.entries()) {
    const [op, ...args] = line.split(" ");
    const [now, u] = [Number(args[0]), Number(args[1])];
    const d = { room: "r", to: args[2] ?? "", epoch: Number(args[3] ?? 0) };
    const want = args.at(-1);
    let got = want;
    switch (op) {
      case "next": got = m.next(now).join(); break;
      case "directed": got = String(m.directed(now, u, d)); break;
      case "lost": got = String(m.lost(now, u, d)); break;
      case "resolved": got = String(m.resolved(now, u, d)); break;
      case "unresolved": m.unresolved(now, u, new Error(op)); break;
      case "refused": m.refused(now, u, new Error(op)); break;
      case "failed": m.failed(now, u, new Error(op)); break;
      case "connected": m.connected(); break;
      case "end": got = [m.target.to, m.target.epoch, m.attempts, m.err !== null].join(); break;
      default: assert.fail(line);
    }
    assert.equal(got, want, `history ${n}, line ${i}: ${line}`);
  }
}

// A pace has the default of each value that is not positive, and no end below its begin, as in Go: other waits
// would be NaN, and none, and the client would ask without a pause.
for (const [given, spread, ask, wait] of [
  [undefined, 500, [100, 250], [3000, 5000]],
  [{ spread: undefined, minAsk: undefined, maxAsk: NaN, askFor: null }, 500, [100, 250], [3000, 5000]],
  [{ spread: 0, minAsk: 0, maxAsk: 0, minWait: 0, maxWait: 0 }, 500, [100, 250], [3000, 5000]],
  [{ spread: 20, minAsk: 1000, minWait: 10_000 }, 20, [1000, 1000], [10_000, 10_000]],
]) {
  const at = (u) => {
    const m = new Machine(given);
    m.directed(0, u, { room: "r", to: "a", epoch: 1 });
    const waits = [m.next(0)[1]];
    m.next(10_000);
    m.failed(10_000, u, new Error("failed"));
    waits.push(m.next(10_000)[1]);
    const asks = new Machine(given);
    asks.lost(0, u, { room: "r" });
    asks.next(0);
    asks.unresolved(0, u, new Error("away"));
    return [...waits, asks.next(0)[1]];
  };
  assert.deepEqual(at(0), [0, wait[0], ask[0]]);
  assert.deepEqual(at(0.999999), [spread - 1, Math.max(wait[0], wait[1] - 1), Math.max(ask[0], ask[1] - 1)]);
}

// The room gets node b 60 ms after the connection to a is lost.
const pace = { ...defaults, spread: 5, minAsk: 10, maxAsk: 20, minWait: 5, maxWait: 10, askFor: 150 };
const began = performance.now();
const tried = [];
const room = { room: "r", to: "a", epoch: 1 };
const driver = new Driver({
  pace,
  connect: async (d) => { tried.push(d.to); if (d.to === "a") throw new Refused("refused"); },
  resolve: async () => (performance.now() - began < 60 ? room : { room: "r", to: "b", epoch: 2 }),
});
await Promise.all([driver.lost(room), driver.follow(room)]);
assert.equal(tried.at(-1), "b");
await driver.follow(room); // old news
assert.equal(tried.at(-1), "b");
// News interrupts an attempt that hangs.
const hung = new Driver({
  pace,
  connect: (d, signal) => (d.to === "c" ? Promise.resolve() : new Promise((_, fail) => { signal.onabort = () => fail(signal.reason); })),
  resolve: async () => room,
});
const first = hung.follow(room);
await new Promise((done) => setTimeout(done, 20));
await Promise.all([first, hung.follow({ room: "r", to: "c", epoch: 2 })]);
// A room that stays away ends with a GaveUp.
const lost = new Driver({ pace, connect: async () => { throw new Refused("refused"); }, resolve: async () => { throw new Error("away"); } });
await assert.rejects(lost.lost(room), (err) => err instanceof GaveUp && err.room === "r" && err.cause.message === "away");
// A directive without an epoch is older than one with an epoch.
for (const epoch of [undefined, null, NaN, "x"]) {
  const bare = { room: "r", to: "a", epoch };
  for (const start of ["directed", "lost", "resolved"]) {
    const m = new Machine();
    if (start === "resolved") {
      m.lost(0, 0, { room: "r" });
      m.next(0);
    }
    m[start](0, 0, bare);
    assert.equal(m.target.epoch, 0, `${start}, epoch ${epoch}`);
    assert.ok(m.directed(0, 0, { room: "r", to: "b", epoch: 1 }), `${start}, epoch ${epoch}`);
    assert.ok(!m.directed(0, 0, bare), `${start}, epoch ${epoch}`);
  }
}
const within = (what, promise) => {
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error(`${what} hangs`)), 10_000); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};
const never = () => new Promise(() => {});
// A directive for another room is an error.
await assert.rejects(driver.follow({ room: "other", to: "a", epoch: 9 }), /another room/);
await assert.rejects(driver.lost({ room: "other" }), /another room/);
// A step that ignores its signal ends with its time, and with news.
const deaf = new Driver({ pace, attemptTimeout: 20, connect: never, resolve: never });
await assert.rejects(within("a deaf step", deaf.follow(room)), (err) => err instanceof GaveUp && err.cause.name === "TimeoutError");
const moved = new Driver({ pace, connect: (d) => (d.to === "c" ? null : never()), resolve: never });
const stuck = moved.follow(room);
await new Promise((done) => setTimeout(done, 20));
await within("a deaf attempt", Promise.all([stuck, moved.follow({ room: "r", to: "c", epoch: 2 })]));
// A Driver that is closed starts no step, and its calls reject.
for (const until of [0, 1, 2, 3]) {
  let steps = 0;
  let aborted = 0;
  const step = (_, signal) => {
    steps++;
    signal.addEventListener("abort", () => aborted++);
    return steps < 3 ? Promise.reject(new Error("failed")) : never();
  };
  const left = new Driver({ pace, connect: step, resolve: step });
  const calls = [left.lost(room), left.follow(room)].map((call) => assert.rejects(within("close", call), { name: "AbortError" }));
  while (steps < until) await new Promise((done) => setTimeout(done, 1));
  left.close();
  left.close();
  await Promise.all(calls);
  const ended = steps;
  await assert.rejects(left.follow({ room: "r", to: "c", epoch: 2 }), { name: "AbortError" });
  await new Promise((done) => setTimeout(done, 30));
  assert.equal(steps, ended);
  if (until === 0) assert.equal(steps, 0);
  if (until === 3) assert.equal(aborted, steps - 2);
}
console.log(`${histories.length} histories`);
