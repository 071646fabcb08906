/** What the page knows of one room. */

export class Room {
  constructor(roomId) {
    this.roomId = roomId;
    this.title = "";
    this.membersOnly = false;
    this.head = 0;
    this.readSeq = 0;
    this.unread = 0;
    this.lastMessage = null;
    this.isMember = false;
    /** Why it cannot be looked at from outside. */
    this.refusal = null;
    /** Messages; only rooms opened lately have them. @type {Log|null} */
    this.log = null;
    /** Mine, on their way or failed. */
    this.pending = [];
    this.draft = "";
    /** @type {Set<string>|null} null = the server does not say */
    this.present = null;
    /** @type {string[]|null} */
    this.members = null;
    /** User → when the sign fades. */
    this.typing = new Map();
    /** Where the line "new" is drawn, fixed while the room is on the screen. */
    this.newBehind = Infinity;
    this.subscription = null;
    /** Where live messages began; what the log holds must reach so far. */
    this.followedFrom = 0;
  }

  get name() { return this.title || this.roomId; }
  /** Whether there is no way in but being added. */
  get isClosed() { return !this.isMember && (this.membersOnly || this.refusal?.code === "not_member"); }
}
