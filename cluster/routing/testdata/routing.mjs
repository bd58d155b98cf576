// Follows the agents of the arguments, and answers each line of standard input, a JSON object, by one.
import { createInterface } from "node:readline";
import { RoutingClient, digestOf, partitionOf, xxh64 } from "../routing.mjs";

const client = new RoutingClient({ agents: process.argv.slice(2), token: process.env.TOKEN, scope: process.env.SCOPE });
const seen = { moved: 0, owners: {}, members: [] };
client.watch(({ moved, left, joined }) => {
  for (const m of moved) {
    if ((seen.owners[m.partition] ?? "") !== m.from) {
      throw new Error(`partition ${m.partition} moves from ${m.from}, was at ${seen.owners[m.partition]}`);
    }
    seen.owners[m.partition] = m.to;
  }
  seen.moved += moved.length;
  seen.members = [...seen.members.filter((id) => !left.includes(id)), ...joined].sort();
});

const answers = {
  ready: () => new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(JSON.stringify(client.status))), 30_000);
    client.ready.then(() => { clearTimeout(late); resolve({}); });
  }),
  hash: ({ text }) => ({ hash: xxh64(new TextEncoder().encode(text)).toString(16).padStart(16, "0") }),
  partition: ({ text, of }) => ({ partition: partitionOf(text, of) }),
  digest: ({ table }) => ({ digest: digestOf(table) }),
  place: ({ keys }) => ({ owners: keys.map((k) => { try { const m = client.place(k); return `${m.id} ${m.api_addr}`; } catch (err) { return err.message; } }) }),
  status: () => ({ status: client.status, members: client.members, seen }),
  close: () => { client.close(); return {}; },
};
for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  console.log(JSON.stringify(await answers[question.ask](question)));
}
client.close();
