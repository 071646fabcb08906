/** Requests of the Queues view, as administrator. */

import { ask } from "./request.js";

const PAGE = 100;

const at = (queue) => `queues/${encodeURIComponent(queue)}`;

/** All queues, ordered by name. */
export async function listQueues() {
  const queues = [];
  for (let after = ""; after !== null;) {
    const page = await ask("GET", `queues?limit=1000${after && `&after=${encodeURIComponent(after)}`}`);
    queues.push(...page.queues);
    after = page.next;
  }
  return queues;
}

export const getQueue = (queue) => ask("GET", at(queue));
export const putQueue = (queue, settings) => ask("PUT", at(queue), settings);
export const deleteQueue = (queue, force) => ask("DELETE", `${at(queue)}${force ? "?force=true" : ""}`);
export const peek = (queue, after) => ask("GET", `${at(queue)}/messages?limit=${PAGE}&after=${after}`);
export const send = (queue, message) => ask("POST", `${at(queue)}/messages`, message);
export const removeMessage = (queue, id) => ask("DELETE", `${at(queue)}/messages/${id}`);
export const redrive = (queue, id) => ask("POST", `${at(queue)}/redrive`, id ? { id } : {});
