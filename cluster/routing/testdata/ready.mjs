// Waits for a table of the agents of the arguments with nothing else to do, and says what two watchers saw, of which one throws.
import { Follower } from "../follow.mjs";

let thrown = "";
const done = new Promise((resolve) => {
  process.on("uncaughtException", (err) => { thrown = err.message; resolve(); });
});
const follower = new Follower({ agents: process.argv.slice(2), silence: 300 });
let moved = 0;
follower.watch(() => { throw new Error("a fault of the callback"); });
follower.watch((change) => { moved += change.moved.length; });
await follower.ready;
await done;
follower.close();
console.log(JSON.stringify({ thrown, moved, errors: follower.status.errors }));
