// Waits for a table of the agents of the arguments with nothing else to do, and says what two watchers saw, of which one throws.
import { RoutingClient } from "../routing.mjs";

let thrown = "";
const done = new Promise((resolve) => {
  process.on("uncaughtException", (err) => { thrown = err.message; resolve(); });
});
const client = new RoutingClient({ agents: process.argv.slice(2), idleTimeout: 300 });
let moved = 0;
client.watch(() => { throw new Error("a problem of the callback"); });
client.watch((change) => { moved += change.moved.length; });
await client.ready;
await done;
client.close();
console.log(JSON.stringify({ thrown, moved, errors: client.status.errors }));
