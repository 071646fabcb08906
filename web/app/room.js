/** The model of one room. */

import { nameOfId } from "./ids.js";

export class Room {
  constructor(roomId) {
    this.roomId = roomId;
    this.title = "";
    this.membersOnly = false;
    /** @type {boolean|null} null = not known yet */
    this.exists = null;
    this.head = 0;
    this.readSeq = 0;
    this.unread = 0;
    this.lastMessage = null;
    this.isMember = false;
    /** Why a non-member cannot read it. */
    this.refusal = null;
    /** The messages; only recently opened rooms have them. @type {Log|null} */
    this.log = null;
    /** My messages that are outgoing or failed. */
    this.pending = [];
    this.draft = "";
    /** @type {Set<string>|null} null = the server does not tell */
    this.present = null;
    /** @type {string[]|null} */
    this.members = null;
    /** User → when the typing sign ends. */
    this.typing = new Map();
    /** Where the line "new" is drawn; fixed while the room is open. */
    this.newBehind = Infinity;
    this.subscription = null;
    /** Where live messages began; the log must reach that far. */
    this.followedFrom = 0;
  }

  get name() { return this.title || nameOfId(this.roomId); }
  /** Whether one must be added by a member. */
  get isClosed() { return !this.isMember && (this.membersOnly || this.refusal?.code === "not_member"); }
}
