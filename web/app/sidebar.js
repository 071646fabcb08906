/** The sidebar: my rooms, the connection, and my name. */

import { State } from "../hubbub.js";
import { $, icon, make, setText, throttled } from "./dom.js";
import { token } from "./token.js";
import { avatar, briefly, count, hue, initials } from "./format.js";
import { saysNoMore } from "./ids.js";

/** Shortest time between two drawings, in ms, so that busy rooms do not make the list jump. */
const DRAW_EVERY = 200;

export class Sidebar {
  #model;
  #actions;
  #items = new Map();
  #filter = $("filter");
  /** The room that was last brought into sight. */
  #sighted = null;

  constructor(model, actions) {
    this.#model = model;
    this.#actions = actions;
    const draw = throttled(DRAW_EVERY, () => this.#draw());
    model.on("rooms", draw);
    model.on("room", draw);
    model.on("day", draw);
    model.on("connection", () => this.#drawMe());
    this.#filter.addEventListener("input", () => this.#draw());
    this.#filter.addEventListener("keydown", (event) => this.#onKey(event));
    this.#drawMe();
    draw();
  }

  focusFilter() {
    this.#filter.focus();
    this.#filter.select();
  }

  /** The room `step` entries below the open one. */
  neighbour(step) {
    const shown = this.#shown();
    const index = shown.indexOf(this.#model.current);
    return shown[index < 0 ? 0 : (index + step + shown.length) % shown.length];
  }

  #shown() {
    const wanted = this.#filter.value.trim().toLowerCase();
    const rooms = this.#model.list;
    if (!wanted) return rooms;
    return rooms.filter((room) => room.name.toLowerCase().includes(wanted) || room.roomId.toLowerCase().includes(wanted));
  }

  #onKey(event) {
    if (event.key === "Escape") {
      this.#filter.value = "";
      this.#filter.blur();
      this.#draw();
    } else if (event.key === "Enter") {
      // Otherwise the same key would also submit the dialog that it opens.
      event.preventDefault();
      const wanted = this.#filter.value.trim();
      const [first] = this.#shown();
      this.#filter.value = "";
      if (first) this.#actions.open(first.roomId);
      else if (wanted) this.#actions.browse(wanted);
      this.#draw();
    }
  }

  #draw() {
    const model = this.#model;
    const rooms = this.#shown();
    const nav = $("rooms");
    const focused = document.activeElement;
    let next = nav.firstElementChild;
    for (const room of rooms) {
      const item = this.#items.get(room) ?? this.#make(room);
      this.#update(item, room);
      if (item.element === next) next = next.nextElementSibling;
      else nav.insertBefore(item.element, next);
    }
    while (next) {
      const surplus = next;
      next = next.nextElementSibling;
      surplus.remove();
    }
    for (const room of this.#items.keys()) {
      if (model.rooms.get(room.roomId) !== room) this.#items.delete(room);
    }
    this.#bringIntoSight();
    if (rooms.length === 0 && model.isLoaded) nav.append(this.#empty());
    // Moving an element removes its focus.
    if (focused !== document.activeElement && nav.contains(focused)) focused.focus();
    const unread = model.unread;
    const place = model.current?.name ?? model.board;
    const title = place ? `${place} · Hubbub` : "Hubbub";
    document.title = unread > 0 ? `(${count(unread)}) ${title}` : title;
  }

  /** Once for each room that is opened: then the list belongs to whoever scrolls it. */
  #bringIntoSight() {
    const { current } = this.#model;
    const element = this.#items.get(current)?.element;
    if (current === this.#sighted || (current && !element?.isConnected)) return;
    this.#sighted = current;
    element?.scrollIntoView({ block: "nearest" });
  }

  #empty() {
    const wanted = this.#filter.value.trim();
    return make("p", { class: "empty" }, wanted ? `None of your rooms matches “${wanted}”. Enter looks further.`
      : "You are in no room yet.");
  }

  #make(room) {
    const badge = make("span", { class: "room-icon", "aria-hidden": "true" });
    badge.style.setProperty("--hue", hue(room.roomId));
    const name = make("span", { class: "room-name" });
    const lock = icon("lock");
    lock.classList.add("lock");
    const time = make("time", {});
    const last = make("span", { class: "room-last" });
    const unread = make("span", { class: "unread", "aria-hidden": "true" });
    const remark = make("span", { class: "unseen" });
    const element = make("button", {
      class: "room-item", type: "button", "data-room": room.roomId, click: () => this.#actions.open(room.roomId),
    }, badge, make("span", { class: "room-top" }, name, lock), remark, time, make("span", { class: "room-line" }, last, unread));
    const item = { element, badge, name, lock, remark, time, last, unread };
    this.#items.set(room, item);
    return item;
  }

  #update(item, room) {
    const { lastMessage: last } = room;
    const draft = room !== this.#model.current && room.draft.trim();
    setText(item.name, room.name);
    setText(item.badge, initials(room.name));
    item.lock.toggleAttribute("hidden", !room.membersOnly);
    setText(item.time, last ? briefly(new Date(last.receivedAt)) : "");
    setText(item.last, draft ? `Draft: ${draft}` : last ? this.#preview(last) : "Nothing said yet");
    item.last.classList.toggle("draft", Boolean(draft));
    setText(item.unread, room.unseen > 0 ? count(room.unseen) : "");
    item.unread.hidden = room.unseen === 0;
    item.element.classList.toggle("has-unread", room.unseen > 0);
    setText(item.remark, [room.membersOnly && "members only", room.unseen > 0 && `${room.unseen} unread`].filter(Boolean).join(", "));
    if (room === this.#model.current) item.element.setAttribute("aria-current", "page");
    else item.element.removeAttribute("aria-current");
  }

  #preview(message) {
    const { userId } = message;
    const name = message.username ?? this.#model.nameOf(userId);
    const who = userId === this.#model.user ? "You" : saysNoMore(userId, name) ? name : `${name} (${userId})`;
    const text = message.message.slice(0, 120).replace(/\s+/g, " ");
    return message.messageType === "TEXT" ? `${who}: ${text}` : `${who} ${message.messageType === "JOIN" ? "joined" : "left"}`;
  }

  #drawMe() {
    const { user, name, client } = this.#model;
    const [state, label] = connectionLabel(client.connection.state);
    const leave = token() === undefined ? "Take another name" : "Log out";
    $("me").replaceChildren(...[
      avatar(user, name),
      make("span", { class: "me-name" }, make("b", { title: user }, name),
        make("span", { class: `connection ${state}` }, label)),
      make("button", { class: "icon", type: "button", title: "Keyboard", "aria-label": "Keyboard shortcuts", click: this.#actions.keys }, icon("keys")),
      this.#actions.account && make("button", { id: "account", class: "icon", type: "button", title: "Account", "aria-label": "Account: password, and where you are logged in", click: this.#actions.account }, icon("lock")),
      make("button", { class: "icon", type: "button", title: leave, "aria-label": leave, click: this.#actions.leave }, icon("exit")),
    ].filter(Boolean));
  }
}

function connectionLabel(state) {
  if (state === State.OPEN) return ["open", "Connected"];
  if (state === State.CLOSED) return ["closed", "Not connected"];
  return ["waiting", "Connecting…"];
}
