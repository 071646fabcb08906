/**
 * My messages that are not among the room's yet: on the way, or failed. They are kept over a reload of the page and sent
 * again with the same ids, so none is stored twice. It uses `sessionStorage`, because two windows must not send each other's
 * messages.
 */

import { Delivery } from "../hubbub.js";

const KEY = "hubbub.outbox";
const KEPT_MAX = 200;

export class Pending {
  #model;
  /** Failed ones, of any room, by id: to be tried again or discarded. */
  #failed = new Map();
  /** Whether a reload of the page would lose none. */
  isKept = true;

  constructor(model) {
    this.#model = model;
    model.client.on("outgoing", (outgoing) => this.#onOutgoing(outgoing));
  }

  /** Sends what is left from before a reload. What is refused once more is shown as such. */
  start() {
    const { client, user } = this.#model;
    for (const message of kept(user)) client.send(message.roomId, message.message, message);
  }

  /** Forgets all. */
  stop() {
    this.#failed.clear();
    keep(this.#model.user, []);
    this.isKept = true;
  }

  #onOutgoing(outgoing) {
    // Joining and leaving are not messages of mine.
    if (outgoing.messageType !== "TEXT") return;
    const room = this.#model.room(outgoing.roomId);
    const known = room.pending.includes(outgoing);
    const isArrived = outgoing.state === Delivery.DURABLE && isInLog(room, outgoing);
    if (isArrived) this.drop(room, outgoing.messageId);
    else if (!known && outgoing.state !== Delivery.DURABLE) room.pending.push(outgoing);
    if (outgoing.state === Delivery.FAILED) this.#failed.set(outgoing.messageId, outgoing);
    else this.#failed.delete(outgoing.messageId);
    this.#keep();
    this.#changed(room);
  }

  #keep() {
    const { client, user } = this.#model;
    this.isKept = keep(user, [...this.#failed.values(), ...client.outgoing]);
  }

  #changed(room) {
    if (room === this.#model.current) this.#model.emit("pending");
  }

  drop(room, messageId) {
    const index = room.pending.findIndex((outgoing) => outgoing.messageId === messageId);
    if (index < 0) return;
    room.pending.splice(index, 1);
    this.#changed(room);
  }

  /** Durable ones whose own message is now among those held. */
  dropArrived(room) {
    for (const outgoing of [...room.pending]) {
      if (outgoing.receipt && isInLog(room, outgoing)) this.drop(room, outgoing.messageId);
    }
  }

  /** Discards a failed message. */
  discard({ roomId, messageId }) {
    this.#failed.delete(messageId);
    this.drop(this.#model.room(roomId), messageId);
    this.#keep();
  }
}

/** A broker's receipt has no seq: then only the message itself tells it. */
function isInLog(room, { receipt, messageId }) {
  if (!room.log) return true;
  return receipt.seq === undefined ? room.log.holds(messageId) : (room.log.newest?.seq ?? 0) >= receipt.seq;
}

/** @returns whether all are kept */
function keep(user, outgoing) {
  const kept = outgoing.slice(0, KEPT_MAX).map(({ roomId, messageId, message, messageType, timestamp }) =>
    ({ roomId, messageId, message, messageType, timestamp }));
  try {
    if (kept.length > 0) sessionStorage.setItem(KEY, JSON.stringify({ user, kept }));
    else sessionStorage.removeItem(KEY);
    return kept.length === outgoing.length;
  } catch {
    // The storage is full or forbidden. The messages are still in memory.
    return outgoing.length === 0;
  }
}

function kept(user) {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    return stored.user === user ? stored.kept : [];
  } catch {
    return [];
  }
}
