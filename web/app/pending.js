/**
 * My messages that are not among the room's yet: on the way, or failed. They are kept over a reload of the page and sent
 * again with the same ids, so none is stored twice. It uses `sessionStorage`, because two windows must not send each other's
 * messages.
 */

import { Delivery } from "../hubbub.js";

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
    if (!isMine(outgoing)) return;
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
    this.isKept = keep(user, [...this.#failed.values(), ...client.outgoing.filter(isMine)]);
  }

  #changed(room) {
    if (room === this.#model.current) this.#model.emit("pending");
  }

  drop(room, messageId) {
    if (this.#failed.delete(messageId)) this.#keep();
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
    this.drop(this.#model.room(roomId), messageId);
  }
}

/** Joining and leaving are not messages of mine. */
const isMine = ({ messageType }) => messageType === "TEXT";

/** Whoever logs in next in this window leaves it alone. */
const keyOf = (user) => `hubbub.outbox.${user}`;

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
    if (kept.length > 0) sessionStorage.setItem(keyOf(user), JSON.stringify(kept));
    else sessionStorage.removeItem(keyOf(user));
    return kept.length === outgoing.length;
  } catch {
    // The storage is full or forbidden. The messages are still in memory.
    return outgoing.length === 0;
  }
}

function kept(user) {
  try {
    return JSON.parse(sessionStorage.getItem(keyOf(user)) ?? "[]");
  } catch {
    return [];
  }
}
