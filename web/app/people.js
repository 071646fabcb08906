/** The people of a room: members, who is here, who types. */

import { State } from "../hubbub.js";

const TYPING_SHOWN = 4_000;
/** Most members of a room that are known by name. Of the rest only the number is known. */
const MEMBERS_MAX = 500;

export class People {
  #model;
  /** Requests under way, each with who came and went meanwhile: the answer may be older. */
  #loads = new Set();

  constructor(model) {
    this.#model = model;
    model.client.on("presence", (frame) => this.#onPresence(frame));
    model.client.on("typing", (frame) => this.#onTyping(frame));
  }

  async load(room) {
    const { client } = this.#model;
    const load = { room, changes: new Map() };
    this.#loads.add(load);
    const [presence, members] = await Promise.allSettled([
      client.presence(room.roomId), client.members(room.roomId, { limit: MEMBERS_MAX }),
    ]);
    const known = members.value?.members.map((member) => member.userId);
    const count = members.value?.next ? await this.#count(room) : known?.length;
    this.#loads.delete(load);
    if (presence.value) room.present = new Set(presence.value.users);
    for (const [user, online] of load.changes) setPresent(room, user, online);
    if (known) Object.assign(room, { members: known, membersBeyond: count - known.length });
    this.#changed(room, "people");
    this.#model.names.lookUp([...(room.present ?? []), ...(room.members ?? [])]);
  }

  async #count(room) {
    const { members } = await this.#model.client.room(room.roomId).catch(() => ({}));
    return Math.max(members ?? room.memberCount, MEMBERS_MAX);
  }

  /** Who follows the room now, including the reader. */
  here(room) {
    const { client, user } = this.#model;
    const isHere = client.connection.state === State.OPEN;
    return [...new Set([...(room.present ?? []), ...(isHere ? [user] : [])])].sort();
  }

  async invite(roomId, userId) {
    await this.#model.client.addMember(roomId, userId);
    await this.#reload(roomId);
  }

  async remove(roomId, userId) {
    await this.#model.client.removeMember(roomId, userId);
    await this.#reload(roomId);
  }

  async #reload(roomId) {
    const room = this.#model.rooms.get(roomId);
    if (room) await this.load(room);
  }

  /** A JOIN or LEAVE message. */
  note(room, { userId, messageType }) {
    if (messageType === "TEXT" || !room.members) return;
    if (messageType === "LEAVE" && !room.members.includes(userId)) room.membersBeyond = Math.max(0, room.membersBeyond - 1);
    room.members = room.members.filter((member) => member !== userId);
    if (messageType === "JOIN") room.members.push(userId);
    this.#changed(room, "people");
  }

  #onPresence({ roomId, userId, online }) {
    const room = this.#model.rooms.get(roomId);
    if (!room) return;
    setPresent(room, userId, online);
    for (const load of this.#loads) if (load.room === room) load.changes.set(userId, online);
    if (online && room === this.#model.current) this.#model.names.lookUp([userId]);
    this.#changed(room, "people");
  }

  #onTyping({ roomId, userId }) {
    const room = this.#model.rooms.get(roomId);
    if (!room || room !== this.#model.current || userId === this.#model.user) return;
    room.typing.set(userId, Date.now() + TYPING_SHOWN);
    this.#changed(room, "typing");
    setTimeout(() => {
      if ((room.typing.get(userId) ?? Infinity) > Date.now() + 50) return;
      room.typing.delete(userId);
      this.#changed(room, "typing");
    }, TYPING_SHOWN);
  }

  #changed(room, event) {
    if (room === this.#model.current) this.#model.emit(event);
  }
}

function setPresent(room, userId, isOnline) {
  room.present ??= new Set();
  if (isOnline) room.present.add(userId);
  else room.present.delete(userId);
  if (!isOnline) room.typing.delete(userId);
}
