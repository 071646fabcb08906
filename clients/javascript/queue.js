/** Queues: sending, taking on lease, and working through them. */

import { pauseOf, sleep, withJson } from "./http.js";
import { makeId, segmentOf } from "./hubbub.js";

/** Longest time the server waits for a message, in ms. */
const WAIT_MAX = 20_000;
/** The pause of `poll` after a refusal is that of an attempt with this number. */
const REFUSED_ATTEMPT = 3;

export class Queue {
  #http;
  #user;
  #path;

  constructor(name, http, user) {
    this.name = name;
    this.#http = http;
    this.#user = user;
    this.#path = `/v1/queues/${segmentOf(name)}`;
  }

  /** Creates the queue, or changes the settings that are named. */
  create(settings = {}) { return this.#http.json("messages", "PUT", this.#path, settings); }

  /** Settings and counts. */
  state() { return this.#http.json("messages", "GET", this.#path); }

  /** Resolves with the receipt once the message is on disk. Repeated with the same id until then: it is stored once. */
  send(message, { messageId = makeId(), sender = this.#user, signal, ...options } = {}) {
    const body = { sender, message, messageId, ...options };
    return this.#http.json("id", "POST", `${this.#path}/messages`, body, { signal });
  }

  /** Takes up to `max` messages on lease, and waits up to `waitMs` for the first. */
  async take({ max = 1, leaseMs, waitMs = 0, receiver = this.#user, order, signal } = {}) {
    const body = { receiver, max, leaseMs, waitMs, order };
    const { messages } = await this.#http.json("messages", "POST", `${this.#path}/lease`, body, { waitMs, signal });
    return messages.map((message) => new Delivery(message, this.#http, this.#path));
  }

  /**
   * Works through the queue until `signal` says so: calls `handler` with each delivery, extends its lease meanwhile,
   * and acknowledges it when the handler is done. When the handler throws, the message goes back to the queue, and
   * `onError` gets the error; so it does when an acknowledgement fails: then the message comes again, but with
   * `error.isOpen` it may be done.
   */
  async poll(handler, { leaseMs = 30_000, receiver, signal, onError = () => {} } = {}) {
    while (!signal?.aborted) {
      try {
        const taken = await this.take({ leaseMs, waitMs: WAIT_MAX, receiver, signal });
        for (const delivery of taken) await work(delivery, handler, leaseMs, onError);
      } catch (error) {
        if (signal?.aborted) return;
        if (!error.retryable) throw error;
        // Whatever the patience was.
        const pause = pauseOf(REFUSED_ATTEMPT, error.problem?.retryAfter, this.#http.options);
        await sleep(pause, [signal, this.#http.closing]);
      }
    }
  }
}

async function work(delivery, handler, leaseMs, onError) {
  const timer = setInterval(() => delivery.extend(leaseMs).catch(() => {}), leaseMs / 3);
  try {
    await handler(delivery);
  } catch (error) {
    await delivery.nack().catch(() => {});
    return onError(error);
  } finally {
    clearInterval(timer);
  }
  try {
    await delivery.ack();
  } catch (error) {
    onError(error);
    if (error.code !== "stale_receipt") throw error;
  }
}

/** A message on lease. */
export class Delivery {
  #http;
  #path;

  constructor(message, http, path) {
    Object.assign(this, message);
    this.#http = http;
    this.#path = `${path}/messages/${encodeURIComponent(message.id)}`;
  }

  #changeLease(member, how, body) {
    return this.#http.json(member, "POST", `${this.#path}/${how}`, { receipt: this.receipt, ...body });
  }

  /**
   * Done: the message is gone. Rejects with `stale_receipt` if the lease had ended; with `isOpen` that may be this call's
   * own doing.
   */
  ack() { return this.#http.done("POST", `${this.#path}/ack`, withJson({ receipt: this.receipt })); }

  /** Gives the message back. */
  nack({ delayMs } = {}) { return this.#changeLease("id", "nack", { delayMs }); }

  /** The lease ends `leaseMs` from now. */
  async extend(leaseMs) {
    const { leasedUntil } = await this.#changeLease("leasedUntil", "extend", { leaseMs });
    this.leasedUntil = leasedUntil;
  }
}
