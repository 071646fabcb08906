/**
 * Starts the page: asks for a name, then connects model and views. The address after `#` names the room, or another view
 * in its place.
 */

import { HubbubError } from "../hubbub.js";
import { $, make, setText } from "./dom.js";
import { idOf, isId, nameFrom } from "./ids.js";
import { Model } from "./model.js";
import { useOf } from "./name-use.js";
import { Timeline } from "./timeline.js";
import { Sidebar } from "./sidebar.js";
import { RoomView } from "./room-view.js";
import { Composer } from "./composer.js";
import { showKeys, showRooms } from "./dialogs.js";
import { QueuesView } from "./queues.js";
import { KeysView } from "./kv.js";
import { sentenceOf } from "./request.js";
import { startTheme } from "./theme.js";
import { askWhoCalls, logOut } from "./login.js";
import { token, whoCallsAtLast } from "./token.js";

const NAME_KEY = "hubbub.name";
/** How often it is looked whether a day has begun, in ms. */
const DAY_LOOK_EVERY = 30_000;

const remembered = (key) => {
  try { return localStorage.getItem(key); } catch { return null; }
};
const remember = (key, value) => {
  try { localStorage.setItem(key, value); } catch { /* only this time, then */ }
};

function askForName(caller) {
  $("welcome").hidden = false;
  const [input, button, notice] = [$("name"), $("come-in"), $("name-taken")];
  /** The name in use that the user was warned about. */
  let warnedOf = null;
  const onInput = () => {
    warnedOf = null;
    notice.hidden = true;
    setText(button, "Come in");
    setText($("name-hint"), input.value.trim() === "" || idOf(input.value) ? " " : "Use a letter, a digit or a sign that is visible.");
  };
  input.addEventListener("input", onInput);
  onInput();
  input.focus();
  $("name-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = nameFrom(input.value);
    if (!name || button.disabled) return;
    if (warnedOf !== name) {
      button.disabled = true;
      const use = await useOf(idOf(name), ["lobby", roomInAddress()?.roomId].filter(Boolean));
      button.disabled = false;
      // The user has typed another name meanwhile.
      if (nameFrom(input.value) !== name) return;
      if (use) {
        warnedOf = name;
        return showTaken(name, use);
      }
    }
    remember(NAME_KEY, name);
    $("welcome").hidden = true;
    begin(name, idOf(name), caller);
  });
}

/** Begins as whoever the token says; where it says nobody, the user does. */
function enter(caller) {
  if (caller === null) return askWhoCalls(enter);
  $("dashboard").hidden = !caller.admin;
  const own = ownName(caller);
  if (caller.authentication && own) return begin(own, own, caller);
  const name = nameFrom(remembered(NAME_KEY) ?? "");
  if (name) begin(name, idOf(name), caller);
  else askForName(caller);
}

/** The name that token or account give. That of an administrator's token is nobody's. */
const ownName = (caller) => caller?.userId ?? caller?.account;

/** Warns that the name is in use, and what continuing means. */
function showTaken(name, use) {
  const since = use === "here" ? " is here already." : " was here before.";
  $("name-taken").replaceChildren("Somebody called ", make("bdi", {}, name), since,
    " If that is not you, choose another name: you would read and write as the same person.");
  $("name-taken").hidden = false;
  $("come-in").replaceChildren("Continue as ", make("bdi", {}, name));
}

/** The room in the address, by its id or its name. */
function roomInAddress() {
  const match = /^#\/([^/]+)$/.exec(location.hash);
  try {
    const text = match ? decodeURIComponent(match[1]) : "";
    if (isId(text)) return { roomId: text, name: "" };
    return idOf(text) ? { roomId: idOf(text), name: nameFrom(text) } : null;
  } catch {
    return null;
  }
}

function begin(name, user, caller) {
  const model = new Model({ user, name, token: token() });
  model.client.on("state", ({ state, code }) => {
    if (state !== "closed" || code !== 4401) return;
    $("app").hidden = true;
    $("account-dialog").close();
    askWhoCalls((again) => {
      // Somebody else gets a page of their own.
      if (ownName(again) && ownName(again) !== user) return location.reload();
      caller = again;
      $("app").hidden = false;
      model.client.setToken(token());
    });
  });
  const complain = (action) => async (...values) => {
    try {
      await action(...values);
    } catch (error) {
      // Rare, and about a request of the user.
      window.alert(sentenceOf(error));
    }
  };
  const actions = {
    open(roomId) { location.hash = roomId ? `#/${encodeURIComponent(roomId)}` : "#/"; },
    join: complain((roomId) => model.join(roomId)),
    leaveRoom: complain(async (roomId) => {
      const room = model.rooms.get(roomId);
      if (room?.membersOnly && !window.confirm(`Leave ${room.name}? To come back, you need a member who adds you.`)) return;
      await model.leave(roomId);
      actions.open(null);
    }),
    browse: (wanted) => showRooms(model, actions, wanted),
    keys: showKeys,
    account: caller.loginId ? complain(async () => (await seldomNeeded("./account.js")).showAccount(caller)) : null,
    async leave() {
      try {
        await logOut();
      } catch (error) {
        return window.alert(`You are still logged in: ${sentenceOf(error)}`);
      }
      model.stop();
      remember(NAME_KEY, "");
      location.hash = "#/";
      location.reload();
    },
  };
  $("app").hidden = false;
  const timeline = new Timeline(model);
  const sidebar = new Sidebar(model, actions);
  const roomView = new RoomView(model, actions);
  const composer = new Composer(model);
  $("new-room").addEventListener("click", () => showRooms(model, actions));
  $("browse").addEventListener("click", () => showRooms(model, actions));
  $("join-lobby").addEventListener("click", complain(async () => {
    await model.join("lobby");
    actions.open("lobby");
  }));
  const boards = [new QueuesView(model, () => caller.admin), new KeysView()];
  const go = () => {
    // Every view is called, so that the previous one ends.
    model.board = boards.map((board) => board.show(location.hash)).find(Boolean) ?? "";
    $("app").classList.toggle("with-board", model.board !== "");
    for (const link of document.querySelectorAll(".boards a")) {
      const isHere = location.hash.split("/", 1)[0] === link.hash && link.hash !== "";
      if (isHere) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const room = model.board ? null : roomInAddress();
    if (room) return model.open(room.roomId, room.name);
    model.close();
    model.emit("room");
  };
  window.addEventListener("hashchange", go);
  for (const woken of ["online", "pageshow"]) window.addEventListener(woken, () => model.client.probe());
  window.addEventListener("beforeunload", (event) => { if (!model.pending.isKept) event.preventDefault(); });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") model.client.probe();
  });
  document.addEventListener("keydown", (event) => onKey(event, { model, actions, sidebar, roomView, composer, timeline }));
  watchDay(() => model.emit("day"));
  model.start();
  go();
}

/** Loads a module that few readers need. */
const seldomNeeded = (path) => import(path).catch(({ message }) => {
  throw new HubbubError({ code: "unreachable", detail: message, retryable: true });
});

/** Calls `changed` when a day has begun. A machine that slept through midnight is late. */
function watchDay(changed) {
  let day = new Date().toDateString();
  setInterval(() => {
    const today = new Date().toDateString();
    if (today === day) return;
    day = today;
    changed();
  }, DAY_LOOK_EVERY);
}

function onKey(event, { model, actions, sidebar, roomView, composer, timeline }) {
  if (document.querySelector("dialog[open]")) return;
  const isCommand = event.ctrlKey || event.metaKey;
  const isWriting = /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = (action) => {
    event.preventDefault();
    action();
  };
  if (isCommand && key === "k") return act(() => sidebar.focusFilter());
  if (isCommand && key === "i") return act(() => roomView.showPeople(!roomView.arePeopleShown));
  if (isCommand && key === "End") return act(() => timeline.goToEnd());
  if (event.altKey && (key === "ArrowUp" || key === "ArrowDown")) {
    return act(() => {
      const room = sidebar.neighbour(key === "ArrowUp" ? -1 : 1);
      if (room) actions.open(room.roomId);
    });
  }
  if ((key === "PageUp" || key === "PageDown") && model.current) return act(() => timeline.scrollBy(key === "PageUp" ? -1 : 1));
  if (key === "Escape" && model.current) {
    if (roomView.arePeopleShown) roomView.showPeople(false);
    return composer.focus();
  }
  if (key === "?" && !isWriting) return act(showKeys);
  // Typing anywhere goes to the message.
  if (!isWriting && !isCommand && !event.altKey && event.key.length === 1 && model.current) composer.focus();
}

startTheme();
const caller = await whoCallsAtLast(() => {
  $("unreachable").hidden = false;
  setText($("unreachable").firstElementChild, "The server cannot be reached. The page goes on when it is back.");
});
$("unreachable").hidden = true;
enter(caller);
