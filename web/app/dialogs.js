/** Dialogs: finding and creating rooms, keyboard shortcuts. */

import { $, icon, make, setStatus } from "./dom.js";
import { amount, avatar } from "./format.js";
import { idMeant, nameFrom, nameOfId } from "./ids.js";
import { sentenceOf } from "./request.js";

/** Most rooms shown, and most among which is looked. */
const SHOWN_MAX = 200;
const ROOMS_MAX = 20_000;
const PAGE = 1_000;

export function dialogHead(title, id, dialog) {
  return make("header", { class: "dialog-head" }, make("h2", { id }, title),
    make("button", { class: "icon", type: "button", "aria-label": "Close", click: () => dialog.close() }, icon("close")));
}

export function showDialog(dialog, ...children) {
  dialog.replaceChildren(...children);
  // A click outside closes it.
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  if (!dialog.open) dialog.showModal();
}

/** The list of all rooms. Its filter also names a new one. */
export function showRooms(model, actions, wanted = "") {
  const dialog = $("rooms-dialog");
  const input = make("input", { value: wanted, dir: "auto", placeholder: "Name of a room, new or old", "aria-label": "Name of a room", spellcheck: "false", maxlength: 64 });
  const list = make("ul", { class: "room-list" });
  const onlyMembers = make("input", { type: "checkbox", id: "members-only" });
  const create = make("button", { class: "primary", type: "submit" }, "Create");
  const hint = make("p", { class: "hint", role: "status" });
  const all = [];
  /** What the list says of the rest: that it comes, or why not. */
  let rest = "Loading…";

  const draw = () => {
    const text = nameFrom(input.value);
    const id = idMeant(text);
    const shown = all.filter((room) => `${room.title ?? ""} ${nameOfId(room.roomId)} ${room.roomId}`.toLowerCase().includes(text.toLowerCase()));
    list.replaceChildren(...shown.slice(0, SHOWN_MAX).map((room) => item(model, room, go)));
    const more = shown.length > SHOWN_MAX && `${amount(shown.length - SHOWN_MAX)} more: write a part of the name.`;
    const none = shown.length === 0 && (text ? "There is no room of that name yet." : "There is no room yet.");
    if (more || rest || none) list.append(make("li", { class: "empty" }, [more, rest].filter(Boolean).join(" ") || none));
    const same = existing(all, text);
    create.disabled = !id || Boolean(same);
    create.replaceChildren("Create", ...(id && !same ? [" “", make("bdi", {}, text), "”"] : []));
    const like = all.find((room) => [room.roomId, room.title ?? ""].some((name) => name.toLowerCase() === text.toLowerCase()));
    setStatus(hint, same ? "There is a room of that name: choose it above." : id && like ? `There is “${like.title || nameOfId(like.roomId)}”. This would be another room.` : "");
  };
  const go = async (roomId) => {
    dialog.close();
    actions.open(roomId);
  };
  const submit = async (event) => {
    event.preventDefault();
    const title = nameFrom(input.value);
    const roomId = idMeant(title);
    if (!roomId) return;
    const same = existing(all, title);
    if (same) return go(same.roomId);
    try {
      await model.create({ roomId, title: title === roomId ? "" : title, membersOnly: onlyMembers.checked });
      go(roomId);
    } catch (error) {
      const isForbidden = error.code === "forbidden";
      setStatus(hint, isForbidden ? "You may not make this room. Ask an administrator, or choose a room above." : sentenceOf(error), true);
    }
  };
  /** All rooms, page by page, while the dialog is open. */
  const load = async () => {
    try {
      for (let after; after !== null && all.length < ROOMS_MAX && list.isConnected && dialog.open;) {
        const page = await model.client.rooms({ limit: PAGE, after });
        all.push(...page.rooms);
        after = page.next ?? null;
        rest = after === null ? "" : all.length < ROOMS_MAX ? "Loading…" : `Only the first ${amount(ROOMS_MAX)} rooms are looked through.`;
        draw();
      }
    } catch (error) {
      rest = sentenceOf(error);
      draw();
    }
  };
  input.addEventListener("input", draw);
  showDialog(dialog, dialogHead("Rooms", "rooms-dialog-title", dialog),
    make("form", { class: "rooms-form", submit },
      make("div", { class: "search field" }, icon("search"), input),
      list,
      hint,
      make("footer", {}, make("label", { for: "members-only" }, onlyMembers, icon("lock"), "Members only"), create)));
  draw();
  input.focus();
  return load();
}

/** The room with that id or that title. */
function existing(rooms, name) {
  const id = idMeant(name);
  return rooms.find((room) => room.roomId === id) ?? rooms.find((room) => name && room.title === name);
}

function item(model, room, go) {
  const name = room.title || nameOfId(room.roomId);
  const isMine = model.rooms.get(room.roomId)?.isMember;
  const messages = room.messages === 1 ? "1 message" : `${room.messages ?? 0} messages`;
  return make("li", {}, make("button", { type: "button", click: () => go(room.roomId) }, avatar(room.roomId, name),
    make("span", { class: "person" }, make("b", {}, name), make("small", {}, `${room.membersOnly ? "members only · " : ""}${messages}`)),
    make("em", {}, isMine ? "joined" : "")));
}

const KEYS = [
  ["Enter", "Send"], ["Shift Enter", "New line"], ["Ctrl K", "Find a room"], ["Alt ↑ ↓", "Room above, below"],
  ["PgUp PgDn", "Scroll"], ["Ctrl End", "Newest message"], ["Ctrl I", "People"], ["Esc", "Close, or back to writing"],
  ["?", "This list"],
];

export function showKeys() {
  const dialog = $("keys-dialog");
  showDialog(dialog, dialogHead("Keyboard", "keys-dialog-title", dialog),
    make("dl", { class: "keys" }, ...KEYS.flatMap(([keys, what]) => [make("dt", {}, ...keys.split(" ").map((key) => make("kbd", {}, key))), make("dd", {}, what)])));
}
