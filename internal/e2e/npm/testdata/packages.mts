// Uses the npm packages with their types, and compares the types with what the modules really have.
import * as reconnect from "@roost-cluster/reconnect";
import * as routing from "@roost-cluster/routing";
import type { components } from "./api.js";

declare const process: { argv: string[] };

// same fails if an object has other names than the types. The compiler accepts only tables that list all names of a type.
function same(what: string, names: Record<string, true>, real: string[]): void {
  const [want, got] = [Object.keys(names).sort().join(), real.sort().join()];
  if (want !== got) throw new Error(`${what} is declared with ${want}, but has ${got}`);
}
const methods = (c: { prototype: object }) => Object.getOwnPropertyNames(c.prototype).filter((name) => name !== "constructor");

const inRouting: Record<keyof typeof routing, true> = { RoutingClient: true, digestOf: true, partitionOf: true, xxh64: true };
same("routing.mjs", inRouting, Object.keys(routing));
const inReconnect: Record<keyof typeof reconnect, true> = {
  Driver: true, GaveUp: true, Machine: true, Refused: true, Step: true, defaults: true,
};
same("reconnect.mjs", inReconnect, Object.keys(reconnect));
const inPace: Record<keyof reconnect.Pace, true> = {
  askFor: true, attempts: true, maxAsk: true, maxWait: true, minAsk: true, minWait: true, spread: true,
};
same("Pace", inPace, Object.keys(reconnect.defaults));
const inClient: Record<Exclude<keyof routing.RoutingClient, "ready">, true> = {
  age: true, close: true, members: true, ownerOf: true, partition: true, place: true, status: true, watch: true,
};
same("RoutingClient", inClient, methods(routing.RoutingClient));
const inDriver: Record<keyof reconnect.Driver, true> = { close: true, follow: true, lost: true };
same("Driver", inDriver, methods(reconnect.Driver));
const inMachine: Record<keyof reconnect.Machine, true> = {
  asking: true, attempts: true, connected: true, connecting: true, directed: true, err: true, failed: true, idle: true,
  lost: true, next: true, over: true, refused: true, resolved: true, target: true, unresolved: true,
};
same("Machine", inMachine, methods(reconnect.Machine));

// The members have the fields that the API describes.
type Described = components["schemas"]["TableMember"];
const fields: Record<keyof Described, true> & Record<keyof routing.Member, true> = {
  addr: true, api_addr: true, app_version: true, capacity: true, id: true, incarnation: true, labels: true, roost_version: true,
  state: true, weight: true, zone: true,
};
export const member = (described: Described): routing.Member => described;

const client = new routing.RoutingClient({ agents: process.argv.slice(2), idleTimeout: 5000 });
await client.ready;
const changes: routing.Change[] = [];
const stop = client.watch((change) => changes.push(change));
stop();
const owner: routing.Member = client.place("room-17");
if (client.ownerOf(client.partition("room-17")) !== owner) throw new Error("two owners");
if (changes[0]?.joined.includes(owner.id) !== true) throw new Error(`${owner.id} has not joined`);
for (const name of Object.keys(owner)) if (!(name in fields)) throw new Error(`a member has the field ${name}`);
const status: routing.Status = client.status;
if (status.stale || Object.keys(status.errors).length > 0) throw new Error(JSON.stringify(status));
const hash: bigint = routing.xxh64(new Uint8Array());
if (routing.partitionOf("", 7) !== Number(hash % 7n)) throw new Error("the hash of nothing");
client.close();

const refused: string[] = [];
const driver = new reconnect.Driver({
  pace: { spread: 1, minAsk: 1, maxAsk: 2 },
  resolve: async (room: string): Promise<reconnect.Directive> => ({ room, to: owner.id, addr: owner.api_addr, epoch: 1 }),
  connect: async (directive, signal: AbortSignal) => {
    signal.throwIfAborted();
    if (refused.push(directive.to) === 1) throw new reconnect.Refused();
  },
});
await driver.lost({ room: "standup" });
driver.close();
console.log(owner.id, refused.join());
