/**
 * The model of the page: the user, the user's rooms, the open room. Views listen and draw. Their own state is only what is
 * on the screen.
 *
 * Events: `rooms` (the list or a number in it), `room` (another room was opened), `log` (its messages),
 * `pending` (my messages without a receipt), `people` (its members, who is here), `typing`, `connection`.
 */

import { Hubbub, State, Delivery } from "../hubbub.js";
import { Emitter } from "./dom.js";
import { Log } from "./log.js";
import { Names } from "./names.js";
import * as outbox from "./outbox.js";
import { People } from "./people.js";
import { Room } from "./room.js";

/** Most rooms whose messages stay in memory after another one was opened. */
const LOGS_MAX = 5;
const ROOMS_PAGE = 500;
/** The list of rooms is asked for again after this time if it could not be had, and after twice that next time, in ms. */
const RELOAD_FIRST = 1_000;
const RELOAD_MAX = 30_000;
const RELOAD_AFTER_RESET = 50;

export class Model extends Emitter {
  constructor({ user, name, url, token }) {
    super();
    this.user = user;
    this.name = name;
    this.rooms = new Map();
    /** @type {Room|null} */
    this.current = null;
    this.isLoaded = false;
    /** Title of what is shown in place of a room. */
    this.board = "";
    /** The oldest position on the screen; messages on the screen are not dropped. */
    this.shownFrom = Infinity;
    this.opened = [];
    this.loading = { number: 0, failures: 0, timer: undefined };
    this.client = new Hubbub({ user, username: name, url, token });
    this.names = new Names(user, name, () => this.emit("people"));
    this.client.on("state", () => this.#onConnection());
    this.client.on("outgoing", (outgoing) => this.#onOutgoing(outgoing));
    this.client.on("read", (frame) => this.#onRead(frame));
    this.client.on("removed", ({ roomId }) => this.#forget(roomId));
    this.people = new People(this);
    this.client.on("error", (error) => console.warn("hubbub:", error.code, error.message));
  }

  start() {
    this.client.connect();
    for (const message of outbox.kept(this.user)) this.client.send(message.roomId, message.message, message);
  }

  stop() {
    clearTimeout(this.loading.timer);
    this.client.close();
    outbox.keep(this.user, []);
  }

  nameOf(userId) { return this.names.of(userId); }

  /** My rooms, the liveliest first. */
  get list() {
    const time = (room) => room.lastMessage?.receivedAt ?? "";
    return [...this.rooms.values()].filter((room) => room.isMember)
      .sort((a, b) => (time(a) < time(b) ? 1 : time(a) > time(b) ? -1 : a.roomId < b.roomId ? -1 : 1));
  }

  get unread() { return this.list.reduce((sum, room) => sum + room.unseen, 0); }

  // ---- Rooms ------------------------------------------------------------------------------------------------------

  #onConnection() {
    if (this.client.connection.state === State.OPEN) {
      this.#loadRooms();
      if (this.current?.log?.error) this.current.log.reload();
    }
    this.emit("connection");
  }

  #loadRoomsIn(wait) {
    clearTimeout(this.loading.timer);
    this.loading.timer = setTimeout(() => this.#loadRooms(), wait);
  }

  /**
   * Runs at every connection: changes by other devices meanwhile must be requested. Where it fails it is tried again. A newer
   * one takes the place of one under way.
   */
  async #loadRooms() {
    const { loading } = this;
    clearTimeout(loading.timer);
    const number = ++loading.number;
    const isNewest = () => loading.number === number;
    try {
      await this.#loadList(isNewest);
      if (isNewest()) loading.failures = 0;
    } catch (error) {
      console.warn("hubbub: rooms:", error.code, error.message);
      if (!isNewest() || !error.retryable || this.client.connection.state !== State.OPEN) return;
      this.#loadRoomsIn(Math.min(RELOAD_FIRST * 2 ** loading.failures++, RELOAD_MAX));
    }
  }

  async #loadList(isNewest) {
    let after;
    let epoch;
    const seen = new Set();
    do {
      const page = await this.client.myRooms({ limit: ROOMS_PAGE, after });
      if (!isNewest()) return;
      // Of the first page: where a later one is of another history, following begins with resets.
      epoch ??= page.epoch;
      for (const entry of page.rooms) {
        seen.add(entry.roomId);
        this.#takeEntry(entry);
      }
      after = page.next;
    } while (after);
    this.list.filter((room) => !seen.has(room.roomId)).forEach((room) => this.#forget(room.roomId));
    if (!this.isLoaded) {
      this.isLoaded = true;
      this.#followMine(epoch);
      if (this.current) this.#follow(this.current);
    }
    for (const event of ["rooms", "room"]) this.emit(event);
  }

  #takeEntry(entry) {
    const room = this.#room(entry.roomId);
    Object.assign(room, { isMember: true, exists: true });
    room.title = entry.title || room.title;
    room.membersOnly = entry.membersOnly ?? room.membersOnly;
    room.takeMark(entry.readSeq, entry.unread, entry.head);
    if (entry.head >= room.head) {
      room.head = entry.head;
      this.#noteLast(room, entry.lastMessage);
    }
  }

  #room(roomId) {
    if (!this.rooms.has(roomId)) this.rooms.set(roomId, new Room(roomId));
    return this.rooms.get(roomId);
  }

  #followMine(epoch) {
    const cursors = {};
    for (const room of this.list) {
      cursors[room.roomId] = room.head;
      this.#followedFrom(room, room.head);
    }
    this.client.subscribe("*", {
      cursors,
      epoch,
      resetTo: "live",
      onMessage: (message) => this.#onMessage(message),
      onReset: (roomId, position) => this.#onReset(roomId, position),
      onSubscribed: (roomId) => this.#onSubscribed(roomId),
      onError: (error) => console.warn("hubbub: my rooms cannot be followed:", error.message),
    });
  }

  /** From now on the server counts me as a member. If the room was not known, somebody added me. */
  #onSubscribed(roomId) {
    const room = this.#room(roomId);
    // The mark that is told here is newer than the messages that follow. The answer tells mark and count of one moment.
    if (!room.isCounted) this.client.markRead(roomId, 0);
    if (room === this.current) this.people.load(room);
    if (room.isMember) return;
    Object.assign(room, { isMember: true, refusal: null });
    if (room.log?.error) room.log.reload();
    this.#inform(room);
    this.emit("rooms");
    if (room === this.current) this.emit("room");
  }

  /** Asks about a room that is not in the list of mine. A room without a title keeps the name from the address. */
  async #inform(room) {
    try {
      const info = await this.client.room(room.roomId);
      room.exists = true;
      room.title = info.title || room.title;
      room.membersOnly = info.membersOnly === true;
    } catch (error) {
      if (error.code === "unknown_room") room.exists = false;
    }
    this.emit("rooms");
    if (room === this.current) this.emit("room");
  }

  #forget(roomId) {
    const room = this.rooms.get(roomId);
    if (!room) return;
    room.isMember = false;
    room.forgetMark();
    if (this.current === room) this.emit("room");
    else this.rooms.delete(roomId);
    this.emit("rooms");
  }

  // ---- Messages ---------------------------------------------------------------------------------------------------

  #onMessage(message) {
    const room = this.#room(message.roomId);
    const isOwn = message.userId === this.user;
    if (room.exists === false) this.#inform(room);
    room.hear(message.seq, isOwn);
    if (isOwn) this.#dropPending(room, message.messageId);
    room.typing.delete(message.userId);
    this.people.note(room, message);
    this.#noteLast(room, message);
    room.log?.append(message, room === this.current ? this.shownFrom : Infinity);
    this.emit("rooms");
    if (room === this.current) this.emit("typing");
  }

  #noteLast(room, message) {
    if (!message) return;
    room.lastMessage = message;
    this.names.learn(message);
  }

  #onReset(roomId, position) {
    const room = this.#room(roomId);
    room.reset(position.head);
    if (room === this.current) room.log?.reload();
    else room.log = null;
    // After a restore all rooms are reset.
    this.#loadRoomsIn(RELOAD_AFTER_RESET);
  }

  #onOutgoing(outgoing) {
    // Joining and leaving are not messages of mine.
    if (outgoing.messageType !== "TEXT") return;
    const room = this.#room(outgoing.roomId);
    const known = room.pending.includes(outgoing);
    const isArrived = outgoing.state === Delivery.DURABLE && this.#isInLog(room, outgoing);
    if (isArrived) this.#dropPending(room, outgoing.messageId);
    else if (!known && outgoing.state !== Delivery.DURABLE) room.pending.push(outgoing);
    outbox.keep(this.user, this.client.outgoing);
    if (room === this.current) this.emit("pending");
  }

  /** A broker's receipt has no seq: then only the message itself tells it. */
  #isInLog(room, { receipt, messageId }) {
    if (!room.log) return true;
    return receipt.seq === undefined ? room.log.holds(messageId) : (room.log.newest?.seq ?? 0) >= receipt.seq;
  }

  #dropPending(room, messageId) {
    const index = room.pending.findIndex((outgoing) => outgoing.messageId === messageId);
    if (index < 0) return;
    room.pending.splice(index, 1);
    if (room === this.current) this.emit("pending");
  }

  /** Durable ones whose own message is now among those held. */
  #dropArrived(room) {
    for (const outgoing of [...room.pending]) {
      if (outgoing.receipt && this.#isInLog(room, outgoing)) this.#dropPending(room, outgoing.messageId);
    }
  }

  /** Sends what is written in the room on the screen. */
  send(text) {
    const room = this.current;
    room.draft = "";
    if (!room.log.atHead && room.log.isReady) room.log.reload();
    this.client.send(room.roomId, text);
  }

  /** Discards a failed message. */
  discard(outgoing) {
    this.#dropPending(this.#room(outgoing.roomId), outgoing.messageId);
  }

  // ---- The open room ----------------------------------------------------------------------------------------------

  /** `name` = the room's, where the address has it rather than the id. */
  open(roomId, name = "") {
    if (this.current?.roomId === roomId) return;
    this.close();
    const room = this.#room(roomId);
    room.title ||= name;
    this.current = room;
    room.newBehind = room.unseen > 0 ? Math.max(room.readSeq, room.asked) : Infinity;
    this.opened = [room, ...this.opened.filter((other) => other !== room)];
    for (const other of this.opened.splice(LOGS_MAX)) other.log = null;
    if (!room.log) {
      room.log = new Log((query) => this.#history(room, query), (change) => {
        if (change === "page") {
          this.#dropArrived(room);
          this.#mend(room);
        }
        if (room === this.current) this.emit("log");
      });
      room.log.reload(Math.min(1_000, Math.max(100, room.unseen + 30)));
    }
    if (this.isLoaded) this.#follow(room);
    if (!room.isMember) this.#inform(room);
    this.people.load(room);
    this.emit("room");
    this.emit("rooms");
  }

  close() {
    const room = this.current;
    if (!room) return;
    this.current = null;
    if (!room.isMember) {
      this.#unfollow(room);
      room.log = null;
      if (room.pending.length === 0) this.rooms.delete(room.roomId);
    }
    this.emit("room");
  }

  async #history(room, query) {
    const page = await this.client.history(room.roomId, query);
    for (const message of page.messages) this.names.learn(message);
    return page;
  }

  /** A room I am not a member of is followed by name, while it is open. */
  #follow(room) {
    if (room.isMember || room.subscription) return;
    room.subscription = this.client.subscribe(room.roomId, {
      last: 1,
      resetTo: "live",
      onMessage: (message) => this.#onMessage(message),
      onReset: (roomId, position) => this.#onReset(roomId, position),
      onSubscribed: (_, { head }) => {
        this.#followedFrom(room, head);
        this.people.load(room);
      },
      onError: (error) => {
        room.subscription = null;
        room.refusal = error;
        if (room === this.current) this.emit("room");
      },
    });
  }

  #followedFrom(room, seq) {
    room.followedFrom = seq;
    this.#mend(room);
  }

  /** The page may have been read before the live messages began. Then there is a gap between the two. */
  #mend(room) {
    const { log, followedFrom } = room;
    if (!log?.isReady || !log.atHead || (log.newest?.seq ?? 0) >= followedFrom) return;
    room.followedFrom = 0;
    log.reload();
  }

  #unfollow(room) {
    room.subscription?.unsubscribe();
    room.subscription = null;
  }

  /** The creator of a room is its first member. */
  async create({ roomId, title, membersOnly }) {
    await this.client.putRoom(roomId, { title: title || undefined, membersOnly: membersOnly || undefined });
    Object.assign(this.#room(roomId), { title, membersOnly });
    await this.join(roomId);
    this.emit("rooms");
  }

  async join(roomId) {
    const room = this.#room(roomId);
    // From now on it is followed as one of my rooms.
    this.#unfollow(room);
    let hasSaidSo;
    try {
      hasSaidSo = await this.#becomeMember(room);
    } catch (error) {
      if (room === this.current) this.#follow(room);
      throw error;
    }
    Object.assign(room, { isMember: true, exists: true, refusal: null });
    if (!hasSaidSo) this.client.send(roomId, "joined", { messageType: "JOIN" });
    await this.#loadRooms();
    if (room === this.current) {
      room.log?.reload();
      this.people.load(room);
      this.emit("room");
    }
  }

  /** @returns whether the room has been told so by its first message */
  async #becomeMember({ roomId, title }) {
    try {
      await this.client.addMember(roomId);
      return false;
    } catch (error) {
      if (error.code !== "unknown_room") throw error;
    }
    try {
      await this.client.putRoom(roomId, { title: title || undefined });
      return false;
    } catch (error) {
      if (error.code !== "forbidden") throw error;
    }
    // Whoever may write makes a room by its first message.
    await this.client.send(roomId, "joined", { messageType: "JOIN" }).done;
    await this.client.addMember(roomId);
    return true;
  }

  async leave(roomId) {
    await this.client.send(roomId, "left", { messageType: "LEAVE" }).done.catch(() => {});
    await this.client.removeMember(roomId);
    this.#unfollow(this.#room(roomId));
    this.#forget(roomId);
  }

  /** Everything in the room on the screen has been seen. */
  markRead() {
    const room = this.current;
    const seq = room?.log?.newest?.seq;
    if (!room?.isMember || !room.log.atHead || !seq || seq <= Math.max(room.readSeq, room.asked)) return;
    room.asked = seq;
    this.client.markRead(room.roomId, seq);
    this.emit("rooms");
  }

  #onRead({ roomId, seq, unread, head }) {
    const room = this.rooms.get(roomId);
    if (!room) return;
    room.takeMark(seq, unread, head);
    this.emit("rooms");
    // What is on the screen may be behind this mark.
    if (room === this.current) this.emit("log");
  }
}
