/** The sidebar: my rooms, the connection, and my name. */

import { State } from "../hubbub.js";
import { $, icon, make, setText, throttled } from "./dom.js";
import { avatar, briefly, count, hue, initials } from "./format.js";

/** Shortest time between two drawings, in ms, so that busy rooms do not make the list jump. */
const DRAW_EVERY = 200;

export class Sidebar {
  #model;
  #actions;
  #items = new Map();
  #filter = $("filter");

  constructor(model, actions) {
    this.#model = model;
    this.#actions = actions;
    const draw = throttled(DRAW_EVERY, () => this.#draw());
    model.on("rooms", draw);
    model.on("room", draw);
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
    let place = nav.firstElementChild;
    for (const room of rooms) {
      const item = this.#items.get(room) ?? this.#make(room);
      this.#update(item, room);
      if (item.element === place) place = place.nextElementSibling;
      else nav.insertBefore(item.element, place);
    }
    while (place) {
      const next = place.nextElementSibling;
      place.remove();
      place = next;
    }
    for (const room of this.#items.keys()) {
      if (model.rooms.get(room.roomId) !== room) this.#items.delete(room);
    }
    if (rooms.length === 0 && model.isLoaded) nav.append(this.#empty());
    // Moving an element removes its focus.
    if (focused !== document.activeElement && nav.contains(focused)) focused.focus();
    const unread = model.unread;
    const title = model.current ? `${model.current.name} · Hubbub` : "Hubbub";
    document.title = unread > 0 ? `(${count(unread)}) ${title}` : title;
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
    const time = make("time", {});
    const last = make("span", { class: "room-last" });
    const unread = make("span", { class: "unread" });
    const element = make("button", {
      class: "room-item", type: "button", "data-room": room.roomId, click: () => this.#actions.open(room.roomId),
    }, badge, name, time, make("span", { class: "room-line" }, last, unread));
    const item = { element, badge, name, time, last, unread };
    this.#items.set(room, item);
    return item;
  }

  #update(item, room) {
    const { lastMessage: last } = room;
    const draft = room !== this.#model.current && room.draft.trim();
    setText(item.name, room.name);
    setText(item.badge, initials(room.name));
    setText(item.time, last ? briefly(new Date(last.receivedAt)) : "");
    setText(item.last, draft ? `Draft: ${draft}` : last ? this.#preview(last) : "Nothing said yet");
    item.last.classList.toggle("draft", Boolean(draft));
    setText(item.unread, room.unread > 0 ? count(room.unread) : "");
    item.unread.hidden = room.unread === 0;
    item.element.classList.toggle("has-unread", room.unread > 0);
    item.element.setAttribute("aria-label", `${room.name}${room.unread > 0 ? `, ${room.unread} unread` : ""}`);
    if (room === this.#model.current) item.element.setAttribute("aria-current", "page");
    else item.element.removeAttribute("aria-current");
  }

  #preview(message) {
    const who = message.userId === this.#model.user ? "You" : message.username ?? this.#model.nameOf(message.userId);
    const text = message.message.slice(0, 120).replace(/\s+/g, " ");
    return message.messageType === "TEXT" ? `${who}: ${text}` : `${who} ${message.messageType === "JOIN" ? "joined" : "left"}`;
  }

  #drawMe() {
    const { user, name, client } = this.#model;
    const [state, label] = connectionLabel(client.connection.state);
    $("me").replaceChildren(
      avatar(user, name),
      make("span", { class: "me-name" }, make("b", { title: user }, name),
        make("span", { class: `connection ${state}` }, label)),
      make("button", { class: "icon", type: "button", title: "Keyboard", "aria-label": "Keyboard shortcuts", click: this.#actions.keys }, icon("keys")),
      make("button", { class: "icon", type: "button", title: "Take another name", "aria-label": "Take another name", click: this.#actions.leave }, icon("exit")),
    );
  }
}

function connectionLabel(state) {
  if (state === State.OPEN) return ["open", "Connected"];
  if (state === State.CLOSED) return ["closed", "Not connected"];
  return ["waiting", "Connecting…"];
}
