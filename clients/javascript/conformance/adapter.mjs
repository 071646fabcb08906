/** Lets the conformance programme drive this client; the commands are in `../../conformance/adapter.py`. */

import { createInterface } from "node:readline";
import { Client } from "../index.js";

const clients = new Map();
const streams = new Map();
const say = (frame) => process.stdout.write(`${JSON.stringify(frame)}\n`);
const errorOf = (error) => ({ code: error.code ?? String(error), retryable: error.retryable, isOpen: error.isOpen, detail: error.stack });

/** Writes the events of a stream as they come, but for while it is held. */
async function pump(sub, stream) {
  const state = { stream, held: null };
  streams.set(sub, state);
  try {
    for await (const { type, ...event } of stream) {
      await state.held?.promise;
      if (state.isStopped) break;
      say({ sub, event: type, ...event });
    }
    if (!state.isStopped) say({ sub, event: "end" });
  } catch (error) {
    if (!state.isStopped) say({ sub, event: "end", error: errorOf(error) });
  }
}

async function work(sub, queue, leaseMs) {
  const abort = new AbortController();
  streams.set(sub, { stream: { close: () => abort.abort() } });
  const { signal } = abort;
  try {
    while (!signal.aborted) {
      const taken = await queue.take({ leaseMs, waitMs: 500, max: 3, signal });
      for (const { id, message } of taken) say({ sub, event: "delivery", id, text: message });
      for (const delivery of taken) {
        const { id } = delivery;
        const outcome = await delivery.ack().then(() => "ok", (error) => {
          if (error.code !== "stale_receipt") throw error;
          return error.isOpen ? "open" : "stale";
        });
        say({ sub, event: "acked", id, outcome });
      }
    }
  } catch (error) {
    if (!signal.aborted) say({ sub, event: "end", error: errorOf(error) });
  }
}

const operations = {
  open({ client, url, user, options }) { clients.set(client, new Client(url, { user, ...options })); },
  close({ client }) {
    clients.get(client).close();
    clients.delete(client);
  },
  send: ({ client, room, text, messageId }) => clients.get(client).room(room).send(text, { messageId }),
  subscribe({ sub, client, room, after, epoch, bufferMax }) {
    void pump(sub, clients.get(client).room(room).subscribe({ after, epoch, bufferMax }));
  },
  hold({ sub }) {
    const state = streams.get(sub);
    state.held = {};
    state.held.promise = new Promise((resolve) => { state.held.release = resolve; });
  },
  release({ sub }) {
    const state = streams.get(sub);
    state.held?.release();
    state.held = null;
  },
  stop({ sub }) {
    const state = streams.get(sub);
    state.isStopped = true;
    state.stream.close();
    streams.delete(sub);
  },
  queueSend: ({ client, queue, text, messageId }) => clients.get(client).queue(queue).send(text, { messageId }),
  work({ sub, client, queue, leaseMs }) { void work(sub, clients.get(client).queue(queue), leaseMs); },
  put: async ({ client, key, value, revision }) => (await clients.get(client).keys.put(key, value, { revision })).revision,
  async get({ client, key }) {
    const found = await clients.get(client).keys.get(key);
    return found ? { value: found.text, revision: found.revision } : null;
  },
  delete: ({ client, key }) => clients.get(client).keys.delete(key),
  watch({ sub, client, prefix, after }) { void pump(sub, clients.get(client).keys.watch({ prefix, after })); },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, ...members } = JSON.parse(line);
  // Begun in the order of the commands; answered as they end.
  (async () => operations[op](members))().then((ok) => say({ id, ok: ok ?? null }), (error) => say({ id, error: errorOf(error) }));
}
