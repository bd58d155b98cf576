// A client that openapi-typescript generates from openapi.json. It prints each event of the streams in a line, after the
// name of its schema.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
const [agent = "", ...nodes] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: agent });

type Streams = "/v1/events" | "/v1/table" | "/v1/rooms/{room}/follow";
type EventOf<P extends Streams> = paths[P]["get"]["responses"][200]["content"]["text/event-stream"];

// events yields the events of a stream, as the schemas describe them.
async function* events<P extends Streams>(body: ReadableStream<Uint8Array> | null | undefined): AsyncGenerator<EventOf<P>> {
  if (!body) throw new Error("no stream");
  const text = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const blocks = (rest + text.decode(chunk, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => {
        const [name, ...value] = line.split(": ");
        return [name, value.join(": ")];
      }));
      if (fields.data) yield { ...fields, data: JSON.parse(fields.data) } as EventOf<P>;
    }
  }
}

const said = (schema: keyof components["schemas"], event: unknown) => console.log(schema, JSON.stringify(event));

function right<T>({ data, error }: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (data === undefined) throw new Error(`${error?.code}: ${error?.error}`);
  return data;
}

const room = "tenant/ö";
right(await client.POST("/v1/load", { body: { units: 3 } }));
const { owner } = right(await client.GET("/v1/place", { params: { query: { key: "room-17" } } }));
const changes = await client.GET("/v1/events", { parseAs: "stream" });
let to: string | undefined;
for await (const event of events<"/v1/events">(changes.data)) {
  said("ChangeEvent", event);
  if (event.event === "moved") {
    if (event.data.moved.some((m) => m.room === room && m.to === to)) break;
  } else if (event.data.full) {
    const at = right(await client.POST("/v1/rooms/{room}/resolve", { params: { path: { room } }, body: { size: 2 } }));
    to = nodes.find((id) => id !== at.node?.id) ?? "";
    right(await client.POST("/v1/rooms/{room}/move", { params: { path: { room } }, body: { to } }));
  }
}
const table = await client.GET("/v1/table", { parseAs: "stream" });
for await (const event of events<"/v1/table">(table.data)) {
  said("TableEvent", event);
  if (!event.data.members?.some((m) => m.id === owner.id)) throw new Error(`${owner.id} is no member`);
  break;
}
const directives = await client.GET("/v1/rooms/{room}/follow", { params: { path: { room } }, parseAs: "stream" });
for await (const event of events<"/v1/rooms/{room}/follow">(directives.data)) {
  said("DirectiveEvent", event);
  if (event.data.to !== to) throw new Error(`the room is on ${event.data.to}`);
  break;
}
// @ts-expect-error: neither the description nor the agent knows this field
const { error } = await client.POST("/v1/weight", { body: { weigth: 100 } });
if (error?.code !== "bad_request") throw new Error(`an unknown field: ${error?.code}`);
