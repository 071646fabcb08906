/** Draws one message as an element. */

import { avatar, clock, dayName, isSameDay, isStacked, textNodes } from "./format.js";
import { icon, make } from "./dom.js";
import { saysNoMore } from "./ids.js";
import { Delivery } from "../hubbub.js";

/** Messages of one user within this time are shown under one head. */
const GROUP_MS = 5 * 60_000;
/** Longer texts are folded. */
const FOLD_CHARACTERS = 1_500;
const FOLD_LINES = 18;

/** @param context `{user, newBehind, nameOf}` */
export function messageRow(message, previous, context) {
  const date = new Date(message.receivedAt);
  const before = previous && new Date(previous.receivedAt);
  const startsDay = !before || !isSameDay(before, date);
  const startsNew = message.seq > context.newBehind && (!previous || previous.seq <= context.newBehind);
  const row = make("li", { class: "row", "data-seq": message.seq, "data-id": message.messageId });
  if (startsDay) row.append(make("p", { class: "day" }, make("span", {}, dayName(date))));
  if (startsNew) row.append(make("p", { class: "new" }, make("span", {}, "New")));
  if (message.messageType !== "TEXT") {
    row.append(eventLine(message, date, context));
    return row;
  }
  const isHead = startsDay || startsNew || !isContinued(message, previous, date, before);
  if (isHead) row.classList.add("head");
  const isOwn = message.userId === context.user;
  row.append(body(message, date, isHead, isOwn, context, isOwn && deliveryMark(Delivery.DURABLE)));
  return row;
}

/** An outgoing message of mine. */
export function pendingRow(outgoing, previous, context, actions) {
  const row = make("li", { class: "row", "data-id": outgoing.messageId });
  const message = { ...outgoing.frame, userId: context.user };
  const date = new Date(outgoing.timestamp);
  const isHead = !previous || !isContinued(message, previous, date, new Date(previous.receivedAt ?? previous.timestamp));
  if (isHead) row.classList.add("head");
  row.append(body(message, date, isHead, true, context, deliveryMark(outgoing.state)));
  if (outgoing.state === Delivery.FAILED) {
    row.classList.add("failed");
    row.append(make("p", { class: "failure", role: "alert" },
      `Not sent: ${outgoing.error.message}. `,
      make("button", { type: "button", class: "link", click: () => actions.retry(outgoing) }, "Try again"), " ",
      make("button", { type: "button", class: "link", click: () => actions.discard(outgoing) }, "Discard")));
  }
  row.dataset.state = outgoing.state;
  return row;
}

function isContinued(message, previous, date, before) {
  return previous && previous.userId === message.userId && previous.messageType === "TEXT" &&
    date - before < GROUP_MS;
}

function body(message, date, isHead, isOwn, context, mark) {
  const name = message.username ?? context.nameOf(message.userId);
  const time = timeOf(date);
  const text = make("div", { class: "text", dir: "auto" }, ...textNodes(message.message));
  const line = make("div", { class: isOwn ? "message own" : "message" });
  if (isHead) {
    const meta = make("p", { class: "meta" }, make("b", { title: message.userId }, name), idBehind(message.userId, name), time);
    line.append(avatar(message.userId, name), meta, text);
  } else {
    line.append(time, text);
  }
  // After the last word, wherever that is.
  if (mark) text.append(mark);
  if (isStacked(message.message)) text.classList.add("stacked");
  if (isLong(message.message)) fold(text);
  return line;
}

/** Anybody may take any name: the id tells who it is. */
function idBehind(userId, name) { return !saysNoMore(userId, name) && make("small", {}, ` ${userId}`); }

function timeOf(date) { return make("time", { datetime: date.toISOString() }, clock(date)); }

function isLong(text) {
  return text.length > FOLD_CHARACTERS || text.split("\n", FOLD_LINES + 1).length > FOLD_LINES;
}

function fold(text) {
  text.classList.add("folded");
  const button = make("button", { type: "button", class: "link unfold", click: () => {
    text.classList.remove("folded");
    button.remove();
  } }, "Show all");
  text.after(button);
}

const MARKS = {
  [Delivery.QUEUED]: ["clock", "Waiting to be sent"],
  [Delivery.SENT]: ["clock", "Sending"],
  [Delivery.DURABLE]: ["check", "On the server's disk"],
  [Delivery.FAILED]: ["alert", "Not sent"],
};

function deliveryMark(state) {
  const [name, label] = MARKS[state];
  return make("span", { class: `mark ${state}`, role: "img", "aria-label": label, title: label }, icon(name));
}

function eventLine(message, date, context) {
  const name = message.username ?? context.nameOf(message.userId);
  const verb = message.messageType === "JOIN" ? "joined" : "left";
  return make("p", { class: "event" }, make("b", { class: isStacked(name) && "stacked" }, name), idBehind(message.userId, name), ` ${verb} · `, timeOf(date));
}
