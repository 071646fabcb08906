/** The frame of a room: its header, the state of the connection, who types, who is here. */

import { State } from "../hubbub.js";
import { $, icon, make, setText, throttled } from "./dom.js";
import { amount, avatar, count } from "./format.js";
import { saysNoMore } from "./ids.js";
import { PeoplePanel } from "./people-panel.js";
import { sentenceOf } from "./request.js";

const FACES_MAX = 4;
/** Interruptions shorter than this, in ms, are not shown. */
const BANNER_AFTER = 700;

export class RoomView {
  #model;
  #actions;
  #panel;
  #arePeopleShown = false;
  #bannerTimer = null;

  constructor(model, actions) {
    this.#model = model;
    this.#actions = actions;
    this.#panel = new PeoplePanel(model, { close: () => this.showPeople(false), leave: (roomId) => actions.leaveRoom(roomId) });
    const draw = throttled(50, () => this.#draw());
    for (const event of ["room", "people"]) model.on(event, draw);
    model.on("rooms", throttled(500, draw));
    model.on("typing", throttled(200, () => this.#drawTyping()));
    model.on("connection", () => this.#drawBanner());
    model.on("pending", () => { if (this.#isBannerShown()) this.#drawBannerNow(); });
    $("people-button").addEventListener("click", () => this.showPeople(!this.#arePeopleShown));
    $("back").addEventListener("click", () => actions.open(null));
    setInterval(() => { if (this.#isBannerShown()) this.#drawBannerNow(); }, 1000);
    draw();
  }

  showPeople(isShown) {
    this.#arePeopleShown = isShown;
    this.#draw();
  }

  get arePeopleShown() { return this.#arePeopleShown; }

  #draw() {
    const room = this.#model.current;
    const app = $("app");
    app.dataset.view = room ? "room" : "rooms";
    $("room").hidden = !room;
    $("room").dataset.shown = room?.roomId ?? "";
    // Until my rooms are known, it is open whether I am a member.
    $("room").setAttribute("aria-busy", String(!this.#model.isLoaded));
    $("nothing").hidden = Boolean(room);
    $("people").hidden = !room || !this.#arePeopleShown;
    app.classList.toggle("with-people", Boolean(room) && this.#arePeopleShown);
    if (!room) {
      const hasRooms = this.#model.list.length > 0;
      setText($("nothing-text"), hasRooms ? "Your rooms are on the left." : "You are in no room yet: the lobby is where everybody meets.");
      $("join-lobby").hidden = this.#model.rooms.get("lobby")?.isMember === true;
      return;
    }
    setText($("title"), room.name);
    setText($("subtitle"), subtitle(room));
    this.#drawFaces(room);
    this.#drawJoinBar(room);
    if (this.#arePeopleShown) this.#panel.draw(room);
    this.#drawTyping();
  }

  #drawFaces(room) {
    const here = this.#model.people.here(room);
    const faces = here.slice(0, FACES_MAX).map((user) => avatar(user, this.#model.nameOf(user)));
    const button = $("people-button");
    const label = room.present ? `${here.length} here` : "People";
    const key = `${here.slice(0, FACES_MAX).map((user) => this.#model.nameOf(user))} ${label}`;
    button.setAttribute("aria-expanded", String(this.#arePeopleShown));
    if (button.dataset.key === key) return;
    button.dataset.key = key;
    button.replaceChildren(make("span", { class: "faces" }, ...faces), faces.length ? "" : icon("people"), make("span", { class: "faces-label" }, label),
      make("span", { class: "unseen" }, ", show people"));
  }

  #drawJoinBar(room) {
    const canWrite = room.isMember || !this.#model.isLoaded;
    $("composer").hidden = !canWrite;
    const bar = $("join-bar");
    bar.hidden = canWrite;
    if (canWrite) return bar.replaceChildren();
    const text = this.#outside(room);
    if (bar.dataset.text === text && bar.firstChild) return;
    bar.dataset.text = text;
    bar.replaceChildren(make("span", {}, text), room.isClosed ? "" :
      make("button", { class: "primary", type: "button", click: () => this.#actions.join(room.roomId) }, room.exists === false ? "Create room" : "Join room"));
  }

  /** What a reader who is not a member is told. */
  #outside(room) {
    const { user, name } = this.#model;
    if (room.isClosed) return `Only members can come in. Ask one of them to add you; ${saysNoMore(user, name) ? "" : `your name: ${name}, `}your id: ${user}`;
    if (room.exists === false) return `There is no room ${room.name} yet.`;
    return room.refusal ? sentenceOf(room.refusal) : `You are looking at ${room.name} from outside.`;
  }

  #drawTyping() {
    const room = this.#model.current;
    const now = Date.now();
    const names = [...(room?.typing ?? [])].filter(([, until]) => until > now).map(([user]) => this.#model.nameOf(user));
    const element = $("typing");
    const text = names.length === 0 ? ""
      : names.length === 1 ? `${names[0]} is typing`
      : names.length < 4 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)} are typing`
      : "Several people are typing";
    if (element.dataset.text === text) return;
    element.dataset.text = text;
    element.replaceChildren(...(text ? [make("span", { class: "dots" }, make("i"), make("i"), make("i")), text] : []));
  }

  // ---- The connection -----------------------------------------------------------------------------------------------

  #isBannerShown() { return !$("banner").hidden; }

  #drawBanner() {
    const { state } = this.#model.client.connection;
    clearTimeout(this.#bannerTimer);
    if (state === State.OPEN || this.#isBannerShown()) return this.#drawBannerNow();
    this.#bannerTimer = setTimeout(() => this.#drawBannerNow(), BANNER_AFTER);
  }

  #drawBannerNow() {
    const { client } = this.#model;
    const { state, retryAt, reason } = client.connection;
    const banner = $("banner");
    banner.hidden = state === State.OPEN;
    document.body.dataset.connection = state;
    if (banner.hidden) return;
    const waiting = client.waiting;
    const kept = waiting > 0 ? ` ${waiting === 1 ? "Your message goes" : `Your ${count(waiting)} messages go`} out when it is back.` : "";
    const text = state === State.CLOSED
      ? `The server closed the connection${reason ? `: ${reason}` : "."}`
      : state === State.WAITING
        ? `No connection. Trying again in ${Math.max(1, Math.ceil((retryAt - Date.now()) / 1000))} s.${kept}`
        : `Connecting…${kept}`;
    if (banner.dataset.text === text) return;
    banner.dataset.text = text;
    banner.replaceChildren(make("span", {}, text),
      state === State.CONNECTING ? "" : make("button", { type: "button", class: "link", click: () => client.connect() }, "Try now"));
  }
}

function subtitle(room) {
  if (room.exists === false) return "no such room yet";
  const parts = [];
  if (room.title && !saysNoMore(room.roomId, room.title)) parts.push(room.roomId);
  if (room.membersOnly || room.isClosed) parts.push("members only");
  if (room.memberCount > 0) parts.push(room.memberCount === 1 ? "1 member" : `${amount(room.memberCount)} members`);
  return parts.join(" · ") || (room.exists ? "everybody may come in" : "");
}
