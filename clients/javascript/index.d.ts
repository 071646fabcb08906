/** A refusal by the server, or a failure to reach it. Decide by `code`; the codes are in docs/api.md. */
export class HubbubError extends Error {
  readonly code: string;
  readonly retryable: boolean;
  readonly status?: number;
  readonly errors: { field: string; rule: string }[];
  /** The whole answer, for members that only some codes have. */
  readonly problem: Record<string, unknown>;
  /** An earlier attempt of the same call went unanswered, and may have taken effect. */
  readonly isOpen?: boolean;
}

/** A new unique id. */
export function makeId(): string;

export interface Options {
  /** A token or an API key. */
  token?: string;
  /** Who calls, where the server asks for no tokens. */
  user?: string;
  /** Shown beside the user's messages. */
  username?: string;
  /** Most messages that wait for their receipt (1,000); further ones are refused with `queue_full`. */
  waitingMax?: number;
  /** Most messages of one room on the way at a time (32). */
  inFlightMax?: number;
  /** Pauses between attempts, in ms (300; 10,000): doubled from the first to the longest, with a random part. */
  backoffFirst?: number;
  backoffMax?: number;
  /** Longest time for an answer, in ms (15,000). */
  answerMax?: number;
  /** Longest silence of a connection before it is probed or given up, in ms (40,000). */
  silenceMax?: number;
  /** How long a request of queues and keys is repeated, in ms (60,000). */
  patience?: number;
  fetch?: typeof globalThis.fetch;
  WebSocket?: unknown;
}

export interface Message {
  messageId: string;
  roomId: string;
  userId: string;
  username?: string;
  message: string;
  messageType: "TEXT" | "JOIN" | "LEAVE";
  timestamp: string;
  seq: number;
  receivedAt: string;
}

/** With a broker as the server's log only the id is known. */
export interface Receipt {
  messageId: string;
  seq?: number;
  epoch?: string;
  receivedAt?: string;
  duplicate?: boolean;
}

export interface Position { epoch?: string; seq?: number }

export type RoomEvent =
  /** The server has accepted the subscription: at every connection. `head` tells how far missed messages go. */
  | { type: "ready"; epoch: string; oldest: number; head: number }
  | { type: "message"; message: Message }
  /** Forget what you hold of the room. `historyReplaced`: a backup was restored; otherwise retention deleted messages. */
  | { type: "reset"; epoch: string; oldest: number; head: number; historyReplaced: boolean };

export interface Subscription extends AsyncIterableIterator<RoomEvent> {
  readonly position: Position;
  close(): void;
}

export interface SubscribeOptions {
  /** The last `seq` you have; 0 = from the oldest. Without it, from now on. */
  after?: number;
  /** The epoch you know `after` from. */
  epoch?: string;
  /** Begin with so many of the newest messages. */
  last?: number;
  /** Where to continue after a reset: with the oldest message, or the next. */
  onReset?: "replay" | "live";
  /** Most events that wait to be taken (1,000). */
  bufferMax?: number;
}

export interface Canceling { signal?: AbortSignal }

export class Room {
  private constructor();
  readonly name: string;
  send(text: string, options?: {
    messageId?: string; userId?: string; username?: string; messageType?: Message["messageType"]; timestamp?: string;
  } & Canceling): Promise<Receipt>;
  subscribe(options?: SubscribeOptions): Subscription;
  history(options?: { after?: number; before?: number; limit?: number; epoch?: string; from?: string; to?: string }):
    Promise<{ messages: Message[]; epoch: string; oldest: number; head: number; next: number | null }>;
}

export interface QueueSettings {
  leaseMs?: number; maxDeliveries?: number; deadLetter?: string; ttlMs?: number; maxMessages?: number; maxBytes?: number;
  onFull?: "refuse" | "dropOldest"; backoffMs?: number; backoffMaxMs?: number;
}

export interface QueueReceipt { id: string; messageId?: string; copies: number; sentAt: string; duplicate: boolean }

export class Delivery {
  private constructor();
  readonly id: string;
  readonly queue: string;
  readonly sender: string;
  readonly receiver?: string;
  readonly message: string;
  readonly groupId?: string;
  readonly sentAt: string;
  readonly deliveries: number;
  readonly receipt: string;
  leasedUntil: string;
  ack(): Promise<void>;
  nack(options?: { delayMs?: number }): Promise<{ id: string; readyAt: string | null }>;
  extend(leaseMs?: number): Promise<void>;
}

export interface TakeOptions extends Canceling {
  max?: number; leaseMs?: number; waitMs?: number; receiver?: string; order?: "oldest" | "newest";
}

export class Queue {
  private constructor();
  readonly name: string;
  create(settings?: QueueSettings): Promise<Record<string, unknown>>;
  state(): Promise<Record<string, unknown>>;
  send(message: string, options?: {
    messageId?: string; sender?: string; receiver?: string; audience?: "all"; delayMs?: number; deliverAt?: string;
    groupId?: string; ttlMs?: number;
  } & Canceling): Promise<QueueReceipt>;
  take(options?: TakeOptions): Promise<Delivery[]>;
  /** `onError` gets what the handler throws, and the error of every acknowledgement that fails. */
  poll(handler: (delivery: Delivery) => unknown, options?: {
    leaseMs?: number; receiver?: string; onError?: (error: HubbubError) => void;
  } & Canceling): Promise<void>;
}

/** A key: text, or percent-encoded if its bytes are no UTF-8. Lists and watches give `{encoded}` only for the latter. */
export type Key = string | { encoded: string };

export interface KeyValue { readonly value: Uint8Array; readonly text: string; readonly revision: number }

export type KeyEvent =
  | { type: "ready"; epoch: string; revision: number }
  | { type: "put" | "delete" | "expire"; key: Key; revision: number }
  /** List the keys anew. Changes after `head` follow. */
  | { type: "reset"; epoch: string; oldest: number; head: number; historyReplaced: boolean };

export interface Watch extends AsyncIterableIterator<KeyEvent> {
  readonly position: { epoch?: string; revision?: number };
  close(): void;
}

export class Keys {
  private constructor();
  get(key: Key, options?: Canceling): Promise<KeyValue | undefined>;
  put(key: Key, value: string | Uint8Array, options?: { revision?: number; ttl?: number } & Canceling):
    Promise<{ revision: number; created: boolean }>;
  delete(key: Key, options?: { revision?: number } & Canceling): Promise<boolean>;
  list(options?: { prefix?: Key; after?: Key; limit?: number } & Canceling): Promise<{
    keys: { key: Key; revision: number; bytes: number; expiresAt?: string }[];
    revision: number; epoch: string; next: Key | null;
  }>;
  watch(options?: { prefix?: Key; after?: number; epoch?: string }): Watch;
}

export interface Connection {
  /** `waiting`: for the next attempt. `closed`: the server has ended it for good, or you have. */
  state: "idle" | "connecting" | "open" | "waiting" | "closed";
  /** Attempts that failed one after another. */
  attempt: number;
  /** Close code and cause of the last end, while there is no connection. */
  code?: number;
  reason?: string;
}

export class Client {
  /** Throws `invalid` if the address or the token is none. */
  constructor(url: string, options?: Options);
  readonly keys: Keys;
  room(name: string): Room;
  queue(name: string): Queue;
  setToken(token: string): void;
  /** How the socket of the rooms is; `idle` before its first use. */
  readonly connection: Connection;
  close(): void;
}
