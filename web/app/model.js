/**
 * The model of the page: the user, the user's rooms, the open room. Views listen and draw. Their own state is only what is
 * on the screen.
 *
 * Events: `rooms` (the list or a number in it), `room` (another room was opened), `log` (its messages),
 * `pending` (my messages without a receipt), `people` (its members, who is here), `typing`, `connection`, `day`
 * (another one has begun).
 */

import { Hubbub, State } from "../hubbub.js";
import { Emitter } from "./dom.js";
import { Log, withinLimits } from "./log.js";
import { Names } from "./names.js";
import { Pending } from "./pending.js";
import { People } from "./people.js";
import { Room } from "./room.js";
import { RoomList } from "./room-list.js";

/** Most rooms whose messages stay in memory after another one was opened. */
const LOGS_MAX = 5;
/** Pause before the list of rooms is asked for after a reset, in ms: others may follow. */
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
    this.client = new Hubbub({ user, username: name, url, token });
    this.page = withinLimits((roomId, query) => this.client.history(roomId, query));
    this.roomList = new RoomList(this.client, (list) => this.#takeList(list));
    this.names = new Names(user, name, () => this.emit("people"));
    this.client.on("state", () => this.#onConnection());
    this.pending = new Pending(this);
    this.client.on("read", (frame) => this.#onRead(frame));
    this.client.on("removed", (frame) => this.#onRemoved(frame));
    this.people = new People(this);
    this.client.on("error", (error) => console.warn("hubbub:", error.code, error.message));
  }

  start() {
    this.client.connect();
    this.pending.start();
  }

  stop() {
    this.roomList.stop();
    this.client.close();
    this.pending.stop();
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
      // Changes by other devices meanwhile must be requested.
      this.roomList.load();
      if (this.current?.log?.error) this.current.log.retry();
    }
    this.emit("connection");
  }

  #takeList({ entries, epoch, news }) {
    const listed = new Set(entries.map((entry) => entry.roomId));
    for (const entry of entries) if (news.get(entry.roomId) !== false) this.#takeEntry(entry);
    for (const room of this.list) if (!listed.has(room.roomId) && !news.get(room.roomId)) this.#lose(room);
    if (!this.isLoaded) {
      this.isLoaded = true;
      this.#followMine(epoch);
      if (this.current) this.#follow(this.current);
    }
    for (const event of ["rooms", "room"]) this.emit(event);
  }

  #takeEntry(entry) {
    const room = this.room(entry.roomId);
    Object.assign(room, { isMember: true, exists: true });
    room.title = entry.title ?? "";
    room.membersOnly = entry.membersOnly ?? room.membersOnly;
    room.takeMark(entry.readSeq, entry.unread, entry.head);
    if (entry.head >= room.head) {
      room.head = entry.head;
      this.#noteLast(room, entry.lastMessage);
    }
  }

  /** The room of that id, known or not. */
  room(roomId) {
    if (!this.rooms.has(roomId)) this.rooms.set(roomId, new Room(roomId));
    return this.rooms.get(roomId);
  }

  #followMine(epoch) {
    const cursors = {};
    for (const room of this.list) {
      cursors[room.roomId] = room.head;
      this.#followedFrom(room, room.head);
      room.isFollowed = true;
    }
    this.client.subscribe("*", {
      cursors,
      epoch,
      resetTo: "live",
      onMessage: (message) => this.#onMessage(message),
      onReset: (roomId, position) => this.#onReset(roomId, position),
      onSubscribed: (roomId, { head }) => this.#onSubscribed(roomId, head),
      onError: (error) => console.warn("hubbub: my rooms cannot be followed:", error.message),
    });
  }

  /** From now on the server counts me as a member. If the room was not known, somebody added me. */
  #onSubscribed(roomId, head) {
    const room = this.room(roomId);
    this.roomList.note(roomId, true);
    // The mark that is told here is newer than the messages that follow. The answer tells mark and count of one moment.
    if (!room.isCounted) this.client.markRead(roomId, 0);
    if (room === this.current) this.people.load(room);
    // What was said since it was followed last has not come.
    if (!room.isFollowed) this.#followedFrom(room, head);
    room.isFollowed = true;
    if (room.isMember) return;
    Object.assign(room, { isMember: true, refusal: null });
    if (room.log?.error) room.log.retry();
    this.#inform(room);
    this.emit("rooms");
    if (room === this.current) this.emit("room");
  }

  /** Asks about a room that is not in the list of mine. */
  async #inform(room) {
    try {
      const info = await this.client.room(room.roomId);
      room.exists = true;
      room.title = info.title ?? "";
      room.membersOnly = info.membersOnly === true;
    } catch (error) {
      if (error.code === "unknown_room") room.exists = false;
    }
    this.emit("rooms");
    if (room === this.current) this.emit("room");
  }

  /** The server has ended following: I am no member any more, or the room is deleted or closed to guests. */
  #onRemoved(frame) {
    const room = this.room(frame.roomId);
    room.subscription = null;
    this.#lose(room);
  }

  /** Not one of mine any more. If the room is still there and open, I may look on. Otherwise the answers say why not. */
  #lose(room) {
    this.#forget(room.roomId);
    if (room !== this.current) return;
    this.#follow(room);
    room.log?.reload();
    this.#inform(room);
  }

  #forget(roomId) {
    this.roomList.note(roomId, false);
    const room = this.rooms.get(roomId);
    if (!room) return;
    room.isMember = room.isFollowed = false;
    room.forgetMark();
    if (this.current === room) this.emit("room");
    else this.#drop(room);
    this.emit("rooms");
  }

  /** Not one of mine, and not on the screen. What I wrote there and could not send is shown when it is opened again. */
  #drop(room) {
    room.log = null;
    if (room.pending.length === 0) this.rooms.delete(room.roomId);
  }

  // ---- Messages ---------------------------------------------------------------------------------------------------

  #onMessage(message) {
    const room = this.room(message.roomId);
    const isOwn = message.userId === this.user;
    if (room.exists === false) this.#inform(room);
    room.hear(message.seq, isOwn);
    if (isOwn) this.pending.drop(room, message.messageId);
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
    const room = this.room(roomId);
    room.reset(position.head);
    if (room === this.current) room.log?.reload();
    else room.log = null;
    // After a restore all rooms are reset.
    this.roomList.loadIn(RELOAD_AFTER_RESET);
  }

  /** Sends what is written in the room on the screen. */
  send(text) {
    const room = this.current;
    room.draft = "";
    if (!room.log.atHead && room.log.isReady) room.log.reload();
    this.client.send(room.roomId, text);
  }

  // ---- The open room ----------------------------------------------------------------------------------------------

  /** `name` = the room's, where the address has it rather than the id. */
  open(roomId, name = "") {
    if (this.current?.roomId === roomId) return;
    this.close();
    const room = this.room(roomId);
    room.givenName ||= name;
    this.current = room;
    room.newBehind = room.unseen > 0 ? Math.max(room.readSeq, room.asked) : Infinity;
    this.opened = [room, ...this.opened.filter((other) => other !== room)];
    for (const other of this.opened.splice(LOGS_MAX)) other.log = null;
    if (room.log?.error) room.log.retry();
    if (!room.log) {
      room.log = this.#makeLog(room);
      room.log.reload(Math.min(1_000, Math.max(100, room.unseen + 30)));
    }
    if (this.isLoaded) this.#follow(room);
    if (!room.isMember) this.#inform(room);
    this.people.load(room);
    this.emit("room");
    this.emit("rooms");
  }

  #makeLog(room) {
    const log = new Log((query) => this.#history(room, query), (change) => {
      if (change === "page") {
        this.pending.dropArrived(room);
        this.#mend(room);
      }
      if (room !== this.current || room.log !== log) return;
      if (change === "pause over") log.retry();
      else this.emit("log");
    });
    return log;
  }

  close() {
    const room = this.current;
    if (!room) return;
    this.current = null;
    if (!room.isMember) {
      this.#unfollow(room);
      this.#drop(room);
    }
    this.emit("room");
  }

  async #history(room, query) {
    const page = await this.page(room.roomId, query);
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
    Object.assign(this.room(roomId), { title: title || "", membersOnly });
    await this.join(roomId);
    this.emit("rooms");
  }

  async join(roomId) {
    const room = this.room(roomId);
    // From now on it is followed as one of my rooms.
    this.#unfollow(room);
    room.isFollowed = false;
    let hasSaidSo;
    try {
      hasSaidSo = await this.#becomeMember(room);
    } catch (error) {
      if (room === this.current) this.#follow(room);
      throw error;
    }
    Object.assign(room, { isMember: true, exists: true, refusal: null });
    if (!hasSaidSo) this.client.send(roomId, "joined", { messageType: "JOIN" });
    await this.roomList.load();
    if (room === this.current) {
      room.log?.reload();
      this.people.load(room);
      this.emit("room");
    }
  }

  /** @returns whether the room has been told so by its first message */
  async #becomeMember({ roomId, title, givenName }) {
    try {
      await this.client.addMember(roomId);
      return false;
    } catch (error) {
      if (error.code !== "unknown_room") throw error;
    }
    try {
      await this.client.putRoom(roomId, { title: title || givenName || undefined });
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
    this.#unfollow(this.room(roomId));
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
