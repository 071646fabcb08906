/** Rooms: sending, and following from a position. The rules of the socket are in `hubbub.js`. */

import { HubbubError, segmentOf } from "./hubbub.js";
import { query } from "./http.js";

export class Room {
  #engine;
  #http;

  constructor(name, engine, http) {
    this.name = name;
    this.#engine = engine;
    this.#http = http;
  }

  /** Resolves with the receipt once the message is on disk. Sent again with the same id until then. */
  async send(text, { signal, ...options } = {}) {
    const outgoing = this.#engine().send(this.name, text, options);
    const cancel = () => outgoing.cancel();
    if (signal?.aborted) cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await outgoing.done;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Follows the room; iterate over what it returns. */
  subscribe(options = {}) { return new Subscription(this.#engine(), this.name, options); }

  /** A page of history, newest last. */
  async history(options = {}) {
    return this.#http.json("messages", "GET", `/v1/rooms/${segmentOf(this.name)}/messages${query(options)}`);
  }
}

/**
 * Events of one room: `ready`, `message`, `reset`. Events that nobody has taken yet are bounded: at `bufferMax` the
 * subscription pauses, and continues behind the last one when half of them are taken.
 */
export class Subscription {
  #engine;
  #room;
  #options;
  #events = [];
  #waiting = null;
  #handle = null;
  #stops;
  #error = null;
  #isOver = false;
  #position;

  constructor(engine, room, { after, epoch, last, onReset = "replay", bufferMax = 1_000 }) {
    this.#engine = engine;
    this.#room = room;
    this.#options = { last, onReset, bufferMax };
    this.#position = { epoch, seq: after };
    const ended = (problem) => this.#end(problem && new HubbubError(problem));
    this.#stops = [
      engine.on("removed", (frame) => { if (frame.roomId === room) ended(frame); }),
      engine.on("state", (state) => { if (state.state === "closed") ended(closedBy(state)); }),
    ];
    try {
      this.#start(this.#position);
    } catch (error) {
      for (const stop of this.#stops) stop();
      throw error;
    }
  }

  /** `{epoch, seq}` behind the last event that was taken: keep it to continue there with another client. */
  get position() { return this.#position; }

  #start({ epoch, seq }) {
    const { last, onReset } = this.#options;
    this.#handle = this.#engine.subscribe(this.#room, {
      after: seq, epoch, last, resetTo: onReset,
      onSubscribed: (_, { epoch, oldest, head }) => this.#push({ type: "ready", epoch, oldest, head }),
      onMessage: (message) => this.#push({ type: "message", message }),
      onReset: (_, { epoch, oldest, head, historyReplaced }) =>
        this.#push({ type: "reset", epoch, oldest, head, historyReplaced }),
      onError: (error) => this.#end(error),
    });
  }

  #push(event) {
    // A server that comes and goes fills nothing.
    if (event.type === "ready" && this.#events.at(-1)?.event.type === "ready") this.#events.pop();
    this.#events.push({ event, position: { ...this.#handle?.cursor } });
    if (this.#waiting) return this.#give();
    if (this.#events.length < this.#options.bufferMax || event.type !== "message") return;
    this.#handle.unsubscribe();
    this.#handle = null;
  }

  #give() {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting.resolve({ value: this.#take(), done: false });
  }

  #take() {
    const { event, position } = this.#events.shift();
    this.#position = position;
    const rest = this.#events.at(-1)?.position ?? position;
    if (!this.#handle && !this.#isOver && this.#events.length <= this.#options.bufferMax / 2) this.#continue(rest);
    return event;
  }

  /** Goes on after a pause. Somebody else may follow the room by now: what is buffered can be taken nevertheless. */
  #continue(position) {
    try { this.#start(position); } catch (error) { this.#end(error); }
  }

  #end(error) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#error = error;
    for (const stop of this.#stops) stop();
    this.#handle?.unsubscribe();
    this.#handle = null;
    const waiting = this.#waiting;
    this.#waiting = null;
    if (!waiting) return;
    if (error) waiting.reject(this.#failure());
    else waiting.resolve({ value: undefined, done: true });
  }

  /** The error, once: after it the iteration is over. */
  #failure() {
    const error = this.#error;
    this.#error = null;
    return error;
  }

  /** Ends the subscription. What is buffered can still be taken. */
  close() { this.#end(null); }

  /** The next event. Rejects if the server has ended the subscription. */
  next() {
    if (this.#events.length > 0) return Promise.resolve({ value: this.#take(), done: false });
    if (this.#error) return Promise.reject(this.#failure());
    if (this.#isOver) return Promise.resolve({ value: undefined, done: true });
    if (this.#waiting) return Promise.reject(new TypeError("the last event was not awaited yet"));
    return new Promise((resolve, reject) => { this.#waiting = { resolve, reject }; });
  }

  return() {
    this.close();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator]() { return this; }
}

/** Why a connection ended for good; `null` if the client was closed. */
export function closedBy({ code, reason, problem }) {
  if (code === 1000) return null;
  if (problem) return { ...problem, retryable: false };
  const codes = { 4401: "unauthorized", 4403: "forbidden" };
  const detail = reason || `the connection was closed with ${code}`;
  return { code: codes[code] ?? "protocol", detail, retryable: false };
}
