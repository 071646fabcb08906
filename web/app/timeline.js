/**
 * Draws a slice of the room's {@link Log} as a bounded number of elements.
 *
 * - It draws once per frame, however many messages came.
 * - At the end of the room the view follows. A reader who scrolled up stays there, and sees how many messages came.
 * - When elements above the visible ones are added or removed, the scroll position moves by as much in the same frame,
 *   so that nothing moves on the screen.
 */

import { $, setText, icon } from "./dom.js";
import { dayName, exact } from "./format.js";
import { isUnreachable, sentenceOf } from "./request.js";
import { messageRow, pendingRow } from "./rows.js";

/** Elements added per step while scrolling. */
const STEP = 40;
/** Distance from an edge, in pixels, at which more is fetched. */
const NEAR = 700;
/** Messages shown before the first new one. */
const CONTEXT = 20;
/** Height of the lowest row, in pixels. */
const ROW_MIN = 24;
/** Distance from the bottom, in pixels, that counts as being there. */
const AT_BOTTOM = 24;

export class Timeline {
  #model;
  #scroller = $("scroller");
  #list = $("messages");
  #pending = $("pending");
  #toBottom = $("to-bottom");
  #log = null;
  #generation = -1;
  #start = 0;
  #end = 0;
  #isFollowing = true;
  #scrollTop = 0;
  #isScheduled = false;
  #isPlaced = false;
  /** Height of the visible part. Reading it while rows change would force another layout of all of them. */
  #height = 800;

  constructor(model) {
    this.#model = model;
    for (const event of ["log", "pending", "room"]) model.on(event, () => this.schedule());
    this.#scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    this.#toBottom.addEventListener("click", () => this.goToEnd());
    // A phone's keyboard, a growing composer, a rotated screen: a reader at the end stays there.
    new ResizeObserver(() => {
      this.#height = this.#scroller.clientHeight;
      if (this.#isFollowing) this.#scrollToEnd();
    }).observe(this.#scroller);
    // Formatting a date costs more than the rest of its row, and hardly any date is looked at.
    this.#list.addEventListener("mouseover", ({ target }) => {
      if (target.tagName === "TIME" && !target.title) target.title = exact(new Date(target.dateTime));
    });
    model.on("day", () => this.#nameDays());
    document.addEventListener("visibilitychange", () => this.schedule());
    window.addEventListener("focus", () => this.schedule());
  }

  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // A hidden page gets no frames. It draws at once when it is visible again.
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#draw();
    });
  }

  goToEnd() {
    const log = this.#model.current?.log;
    if (!log) return;
    this.#isFollowing = true;
    if (!log.atHead) log.reload();
    this.schedule();
  }

  scrollBy(pages) {
    this.#scroller.scrollBy({ top: pages * this.#scroller.clientHeight * 0.85 });
  }

  #draw() {
    const room = this.#model.current;
    const log = room?.log;
    if (!log) return this.#clear();
    if (log !== this.#log || log.generation !== this.#generation) this.#restart(room, log);
    if (this.#isFollowing) this.#follow();
    else this.#fillBelow();
    this.#drawPending(room);
    this.#drawTop(log);
    if (!this.#isPlaced && log.isReady) this.#place(room, log);
    if (this.#isFollowing) this.#scrollToEnd();
    if (log.isReady) this.#reach(log);
    this.#drawToBottom(room, log);
    // A following reader sees the newest, and a hidden page is not drawn: nothing older needs to be kept.
    this.#model.shownFrom = this.#isFollowing ? Infinity : this.#start;
    if (this.#isFollowing && log.isReady && !log.atHead && !log.isLoading) log.reload();
    if (this.#isFollowing && document.visibilityState === "visible" && document.hasFocus()) this.#model.markRead();
  }

  /** What was today is yesterday now. */
  #nameDays() {
    for (const name of this.#list.querySelectorAll(".day span")) {
      setText(name, dayName(new Date(name.closest(".row").querySelector("time").dateTime)));
    }
  }

  /** Most elements: the visible ones, those near them, and a step at each end. */
  #rowsMax() { return Math.ceil((this.#height + 2 * NEAR) / ROW_MIN) + 2 * STEP; }
  /** Most elements, besides one step, while the view follows: each row costs time at every new message. */
  #rowsKept() { return Math.ceil((this.#height + NEAR) / ROW_MIN) + 4; }

  #clear() {
    this.#log = null;
    this.#list.replaceChildren();
    this.#pending.replaceChildren();
  }

  /** Another room, or another part of this one: starts at its end, or where reading stopped. */
  #restart(room, log) {
    if (log !== this.#log) this.#isPlaced = false;
    this.#log = log;
    this.#generation = log.generation;
    const unread = this.#isPlaced || room.newBehind === Infinity ? 0 : log.end - log.positionBehind(room.newBehind);
    this.#isFollowing = unread < this.#rowsMax() - CONTEXT;
    const wanted = this.#isFollowing ? Math.max(this.#rowsKept(), unread + CONTEXT) : unread + CONTEXT;
    this.#start = Math.max(log.start, log.end - wanted);
    this.#end = Math.min(log.end, this.#start + this.#rowsMax());
    this.#list.replaceChildren(this.#rows(this.#start, this.#end));
    this.#pending.replaceChildren();
  }

  /** If more is unread than the screen holds, starts with the first unread message. */
  #place(room, log) {
    this.#isPlaced = true;
    if (room.newBehind === Infinity) return;
    const line = this.#list.querySelector(".new");
    const edge = this.#scroller.getBoundingClientRect().top;
    // Without the line, everything in the log is new.
    this.#scroller.scrollTop = line ? this.#scroller.scrollTop + line.getBoundingClientRect().top - edge - 60 : 0;
    this.#scrollTop = this.#scroller.scrollTop;
    this.#isFollowing = this.#end === log.end && this.#distanceToEnd() < AT_BOTTOM;
  }

  #context() {
    const { user, current } = this.#model;
    return { user, newBehind: current.newBehind, nameOf: (id) => this.#model.nameOf(id) };
  }

  #rows(from, to) {
    const rows = document.createDocumentFragment();
    const context = this.#context();
    for (let position = from; position < to; position++) {
      rows.append(messageRow(this.#log.at(position), this.#log.at(position - 1), context));
    }
    return rows;
  }

  #follow() {
    const log = this.#log;
    if (log.end - this.#end > this.#rowsKept()) {
      this.#start = Math.max(log.start, log.end - this.#rowsKept());
      this.#end = log.end;
      this.#list.replaceChildren(this.#rows(this.#start, this.#end));
      return;
    }
    if (this.#end < log.end) {
      this.#list.append(this.#rows(this.#end, log.end));
      this.#end = log.end;
    }
    const surplus = this.#end - this.#start - this.#rowsKept();
    if (this.#isPlaced && surplus > STEP) this.#cutAbove(surplus);
  }

  #fillBelow() {
    const to = Math.min(this.#log.end, this.#start + this.#rowsMax());
    if (to <= this.#end) return;
    this.#list.append(this.#rows(this.#end, to));
    this.#end = to;
  }

  #cutAbove(count) {
    const range = document.createRange();
    range.setStartBefore(this.#list.firstChild);
    range.setEndAfter(this.#list.children[count - 1]);
    range.deleteContents();
    this.#start += count;
  }

  #cutBelow(count) {
    for (let i = 0; i < count; i++) this.#list.lastChild.remove();
    this.#end -= count;
  }

  /** Changes elements while the visible ones stay in place. */
  #holding(change) {
    const edge = this.#scroller.getBoundingClientRect().top;
    const anchor = [...this.#list.children].find((row) => row.getBoundingClientRect().bottom > edge + 1);
    const before = anchor?.getBoundingClientRect().top;
    change();
    if (!anchor?.isConnected) return;
    const moved = anchor.getBoundingClientRect().top - before;
    if (Math.abs(moved) > 0.5) this.#scroller.scrollTop += moved;
    this.#scrollTop = this.#scroller.scrollTop;
  }

  #extendAbove() {
    const from = Math.max(this.#log.start, this.#start - STEP);
    this.#holding(() => {
      // What was the oldest may now continue the message before it. Not when it is what is held: then it stays.
      this.#list.prepend(this.#rows(from, this.#start));
      const joint = this.#list.children[this.#start - from];
      if (joint && joint.getBoundingClientRect().bottom < this.#scroller.getBoundingClientRect().top) {
        joint.replaceWith(this.#rows(this.#start, this.#start + 1));
      }
      this.#start = from;
      const surplus = this.#end - this.#start - this.#rowsMax();
      if (surplus > 0) this.#cutBelow(surplus);
    });
    this.#model.shownFrom = this.#start;
  }

  #extendBelow() {
    const to = Math.min(this.#log.end, this.#end + STEP);
    this.#holding(() => {
      this.#list.append(this.#rows(this.#end, to));
      this.#end = to;
      const surplus = this.#end - this.#start - this.#rowsMax();
      if (surplus > 0) this.#cutAbove(surplus);
    });
  }

  #distanceToEnd() {
    return this.#scroller.scrollHeight - this.#scroller.clientHeight - this.#scroller.scrollTop;
  }

  #scrollToEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#scrollTop = this.#scroller.scrollTop;
  }

  #onScroll() {
    const log = this.#log;
    if (!log) return;
    const top = this.#scroller.scrollTop;
    const wentUp = top < this.#scrollTop - 1;
    this.#scrollTop = top;
    const distance = this.#distanceToEnd();
    const isAtEnd = this.#end === log.end && log.atHead && distance < AT_BOTTOM;
    if (wentUp && distance > 2) this.#isFollowing = false;
    else if (isAtEnd) this.#isFollowing = true;
    this.schedule();
  }

  /** Adds elements when the reader comes near an edge. */
  #reach(log) {
    if (this.#scroller.scrollTop < NEAR) {
      if (this.#start > log.start) this.#extendAbove();
      else log.older();
    }
    if (!this.#isFollowing && this.#distanceToEnd() < NEAR) {
      if (this.#end < log.end) this.#extendBelow();
      else if (!log.atHead) log.newer();
    }
  }

  #drawPending(room) {
    const shown = [...this.#pending.children];
    const wanted = this.#end === this.#log.end && this.#log.isReady ? room.pending : [];
    const isSame = shown.length === wanted.length && wanted.every((outgoing, index) =>
      shown[index].dataset.id === outgoing.messageId && shown[index].dataset.state === outgoing.state);
    if (isSame) return;
    const context = this.#context();
    const actions = { retry: (outgoing) => this.#retry(outgoing), discard: (outgoing) => this.#model.pending.discard(outgoing) };
    this.#pending.replaceChildren(...wanted.map((outgoing, index) => {
      const previous = index === 0 ? this.#log.newest : { ...wanted[index - 1].frame, userId: context.user };
      return pendingRow(outgoing, previous, context, actions);
    }));
  }

  #retry(outgoing) {
    outgoing.retry();
    this.schedule();
  }

  #drawTop(log) {
    const top = $("top");
    if (log.error) {
      setText(top, whyEmpty(log.error));
    } else if (!log.isReady || log.isLoading) {
      setText(top, "Loading…");
    } else if (log.atOldest && this.#start === log.start) {
      setText(top, log.length === 0 ? "Nothing has been said here yet." : "This is where the room begins.");
    } else {
      setText(top, " ");
    }
  }

  #drawToBottom(room, log) {
    const isShown = !this.#isFollowing && log.isReady && (this.#distanceToEnd() > 120 || !log.atHead);
    if (this.#toBottom.hidden === isShown) this.#toBottom.hidden = !isShown;
    if (!isShown) return;
    const label = room.unseen > 0 ? `${room.unseen} new` : "Latest";
    if (this.#toBottom.textContent !== label) this.#toBottom.replaceChildren(icon("down"), label);
  }
}

/** Why a room's messages are not shown. What the connection does is said elsewhere. */
function whyEmpty(error) {
  if (error.code === "not_member") return "What is said here is for members.";
  if (error.code === "unknown_room") return "Nothing has been said here yet.";
  return isUnreachable(error) ? "The messages come when the connection is back." : `The messages cannot be loaded: ${sentenceOf(error)}`;
}
