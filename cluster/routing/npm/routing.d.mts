// Types of routing.mjs. Times are in milliseconds.

/** A live node of the cluster, or the last known facts about an owner that has just gone. */
export interface Member {
  readonly id: string;
  /** Where the application of the node serves its clients. Empty if the node does not say. */
  readonly api_addr: string;
  /** "left" for an owner that has gone. Only id and api_addr are certain then. */
  readonly state: string;
  /** The address of gossip. */
  readonly addr?: string;
  readonly zone?: string;
  readonly weight?: number;
  readonly capacity?: number;
  readonly labels?: Readonly<Record<string, string>>;
  /** Another number after each restart of the node. It can exceed 2^53, so it is a string. */
  readonly incarnation?: string;
  readonly app_version?: string;
  readonly roost_version?: string;
}

/** A partition with another owner than before. The id is "" if there was, or is, no owner. */
export interface Move {
  partition: number;
  from: string;
  to: string;
}

/** What differs from the last change. A node that has restarted is in left and in joined. */
export interface Change {
  moved: Move[];
  left: string[];
  joined: string[];
}

export interface Status {
  /** The agent that is followed, without credentials. "" if none is. */
  agent: string;
  age: number;
  /** Whether the table of the agent itself may be out of date. */
  stale: boolean;
  /** Errors by the addresses of the agents, without credentials. */
  errors: Record<string, string>;
}

export interface Options {
  /** host:port or URL of each agent. A user and a password in a URL are sent to that agent. */
  agents: string[];
  /** A scope of the agents to follow instead of all members. */
  scope?: string;
  /** Sent to all agents, in place of users and passwords. */
  token?: string;
  /** How long an agent can be silent before the client asks another one: 300 to 180,000, and 1,000 by default. */
  idleTimeout?: number;
  /** Replaces the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** Follows one of the agents at a time, and another one when that fails. */
export class RoutingClient {
  constructor(options: Options);
  /** Resolves as soon as there is a table. */
  readonly ready: Promise<void>;
  /** Returns the member that owns the key. Throws if there is no table yet, or no owner. */
  place(key: string): Member;
  /** Returns the partition of the key. Throws if there is no table yet. */
  partition(key: string): number;
  /** Returns the owner of a partition, or the member that runs it until the owner does. */
  ownerOf(partition: number): Member;
  /** The live members, by id. */
  get members(): Member[];
  /** How long ago an agent has confirmed the table. */
  get age(): number;
  get status(): Status;
  /** Calls back with each change, first with the whole table if there is one. Returns a function that ends the calls. */
  watch(callback: (change: Change) => void): () => void;
  /** Ends the client. Lookups continue with the last table. */
  close(): void;
}

/** Returns the hash xxHash64 of bytes with seed 0. */
export function xxh64(bytes: Uint8Array): bigint;

/** Returns the partition of a key, the same as on every node. */
export function partitionOf(key: string, partitions: number): number;

/** Returns the digest of a table as 16 hexadecimal digits. */
export function digestOf(table: { partitions: number; strategy: string; owners: readonly string[] }): string;
