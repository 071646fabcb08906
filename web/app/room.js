/** The model of one room. */

import { nameOfId } from "./ids.js";

/** Live messages that are remembered to be counted again. */
const HEARD_MAX = 1_000;

export class Room {
  constructor(roomId) {
    this.roomId = roomId;
    /** Whether it is followed as one of mine. */
    this.isFollowed = false;
    /** As the server has it. */
    this.title = "";
    /** As the address has it, of a room without a title. */
    this.givenName = "";
    this.membersOnly = false;
    /** @type {boolean|null} null = not known yet */
    this.exists = null;
    this.head = 0;
    /** Mark and count as the server told them, and what follows from them; see "To count on a device yourself" in docs/api.md. */
    this.readSeq = 0;
    this.unread = 0;
    /** Whether the server told them. */
    this.isCounted = false;
    /** The mark that was asked for. The server may not know of it yet. */
    this.asked = 0;
    /** Messages up to here are in `unread`. */
    this.counted = 0;
    /** The newest message when the server told them. */
    this.told = 0;
    /** Live messages, newest last: a mark that comes late counts those behind it once more. */
    this.heard = [];
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
    /** Number of members that are not among those. */
    this.membersBeyond = 0;
    /** User → when the typing sign ends. */
    this.typing = new Map();
    /** Where the line "new" is drawn; fixed while the room is open. */
    this.newBehind = Infinity;
    this.subscription = null;
    /** Where live messages began; the log must reach that far. */
    this.followedFrom = 0;
  }

  /** Counts a message as the server does: my own one moves the mark along if it stood at the head. */
  count(seq, isOwn) {
    if (seq <= this.counted) return;
    const isAtHead = this.readSeq >= this.counted;
    this.counted = seq;
    if (isOwn && isAtHead) this.readSeq = seq;
    else if (seq > this.readSeq) this.unread += 1;
  }

  /** A live message, in the order of the room. */
  hear(seq, isOwn) {
    if (seq <= (this.heard.at(-1)?.seq ?? 0)) return;
    this.head = Math.max(this.head, seq);
    this.heard.push({ seq, isOwn });
    if (this.heard.length > HEARD_MAX) this.heard.shift();
    this.count(seq, isOwn);
  }

  /** The server's mark and count when `head` was the newest message; it may come before messages that it counts, or behind others. */
  takeMark(readSeq, unread, head) {
    // Marks and heads only grow: what has less was told late.
    if (this.isCounted && (readSeq < this.readSeq || (readSeq === this.readSeq && head < this.told))) return;
    this.isCounted = true;
    this.told = head;
    this.readSeq = readSeq;
    this.unread = unread;
    this.counted = head;
    for (const { seq, isOwn } of this.heard) this.count(seq, isOwn);
  }

  /** Numbers begin anew, or a part of them is missing. */
  reset(head) {
    Object.assign(this, { head, counted: head, heard: [] });
    this.forgetMark();
  }

  /** Until the server tells them again. */
  forgetMark() {
    Object.assign(this, { readSeq: 0, unread: 0, isCounted: false, told: 0, asked: 0 });
  }

  /** What to show as unread: what was asked for counts as read at once. */
  get unseen() {
    if (this.asked <= this.readSeq) return this.unread;
    return Math.min(this.unread, this.heard.filter(({ seq, isOwn }) => seq > this.asked && !isOwn).length);
  }

  get memberCount() { return (this.members?.length ?? 0) + this.membersBeyond; }
  get name() { return this.title || this.givenName || nameOfId(this.roomId); }
  /** Whether one must be added by a member. */
  get isClosed() { return !this.isMember && (this.membersOnly || this.refusal?.code === "not_member"); }
}
