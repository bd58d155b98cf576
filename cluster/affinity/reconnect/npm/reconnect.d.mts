// Types of reconnect.mjs. Times are in milliseconds.

/** Where a room is now, as in the JSON of roost. */
export interface Directive {
  room: string;
  /** The id of the node. */
  to?: string;
  /** Where the node serves its clients. */
  addr?: string;
  reason?: string;
  /** Grows with each move of the room. */
  epoch?: number;
}

/** The waits of a machine. A value that is not positive is the default. */
export interface Pace {
  attempts: number;
  minWait: number;
  maxWait: number;
  spread: number;
  minAsk: number;
  maxAsk: number;
  askFor: number;
}

export const defaults: Readonly<Pace>;

export const Step: Readonly<{ none: 0; connect: 1; resolve: 2; done: 3 }>;
export type Step = 0 | 1 | 2 | 3;

/** Says that a node did not accept the client. */
export class Refused extends Error {}

/** The end of a failed migration. Its cause is why the last step failed. */
export class GaveUp extends Error {
  constructor(room: string, attempts: number, cause?: unknown);
  room: string;
  attempts: number;
}

/** The target of a machine. */
export type Target = Directive & { to: string; epoch: number };

/**
 * Decides when to ask and when to connect, for programs with a loop of their own. Methods take the time and a random
 * number in [0, 1).
 */
export class Machine {
  constructor(pace?: Partial<Pace>);
  get target(): Target;
  get attempts(): number;
  get err(): GaveUp | null;
  get idle(): boolean;
  get over(): boolean;
  get connecting(): boolean;
  get asking(): boolean;
  /** Takes a directive. Returns whether it is news: the caller then abandons the steps in progress. */
  directed(now: number, u: number, directive: Directive): boolean;
  /** Takes the loss of the connection to the directive. Returns whether that is the present connection. */
  lost(now: number, u: number, directive: Directive): boolean;
  /** Returns the next step, and how long to wait. Without a wait, the step has begun. */
  next(now: number): [step: Step, wait: number];
  connected(): void;
  /** The target of the attempt in progress did not accept the client. */
  refused(now: number, u: number, err: unknown): void;
  /** The attempt in progress failed after the target had accepted it. */
  failed(now: number, u: number, err: unknown): void;
  /** Takes the answer of the resolve in progress. Returns whether it is news: the caller then abandons an attempt in progress. */
  resolved(now: number, u: number, directive: Partial<Directive>): boolean;
  unresolved(now: number, u: number, err: unknown): void;
}

export interface Options {
  /** Connects to the node. Throws a Refused if nothing listens there. If the signal aborts, the connection is not wanted. */
  connect(directive: Target, signal: AbortSignal): Promise<unknown>;
  /** Asks where the room is. */
  resolve(room: string, signal: AbortSignal): Promise<Directive>;
  pace?: Partial<Pace>;
  /** How long a connection can take, 10,000 by default. */
  attemptTimeout?: number;
}

/** Brings one client of one room to the node of the room. */
export class Driver {
  constructor(options: Options);
  /** Connects the client to the node of the directive, or of newer news. Rejects with a GaveUp, and after close. */
  follow(directive: Directive): Promise<void>;
  /** Moves the client after it lost the connection to the directive. With a room alone, the client joins the room. */
  lost(directive: Directive): Promise<void>;
  /** Aborts the steps in progress and starts no others. An open connection stays open. */
  close(): void;
}
