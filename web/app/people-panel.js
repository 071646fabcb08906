/** The panel beside a room: who is here, who else is a member, adding somebody, leaving. */

import { $, icon, make, setText } from "./dom.js";
import { amount, avatar } from "./format.js";
import { idMeant, idOf, nameFrom, saysNoMore } from "./ids.js";
import { useOf } from "./name-use.js";
import { sentenceOf } from "./request.js";

/** Most people listed by name in each group. */
const NAMED_MAX = 200;

export class PeoplePanel {
  #model;
  #room = null;
  /** An id nobody uses that the reader was warned about. */
  #doubted = "";
  #groups = make("div");
  #name = make("input", { id: "invite-name", dir: "auto", placeholder: "Name", maxlength: 64, spellcheck: "false", autocomplete: "off", input: () => this.#forgetDoubt() });
  #add = make("button", { type: "submit" }, "Add");
  #hint = make("p", { class: "hint", role: "status" });
  #form = make("form", { class: "invite", submit: (event) => this.#submit(event) },
    make("label", { for: "invite-name" }, "Add a person"), make("div", { class: "field" }, this.#name), this.#add, this.#hint);
  #leave;

  constructor(model, { close, leave }) {
    this.#model = model;
    this.#leave = make("button", { type: "button", class: "danger", click: () => leave(this.#room.roomId) }, "Leave room");
    $("people").append(
      make("header", { class: "panel-head" }, make("h2", {}, "People"),
        make("button", { class: "icon", type: "button", "aria-label": "Close", click: close }, icon("close"))),
      this.#groups, this.#form,
      make("p", { class: "panel-actions" },
        make("button", { type: "button", click: (event) => copyLink(event.currentTarget) }, "Copy link"), this.#leave));
  }

  draw(room) {
    if (room !== this.#room) this.#begin(room);
    const here = this.#model.people.here(room);
    const members = room.members ?? [];
    this.#form.hidden = !room.isMember || !room.members;
    this.#leave.hidden = !room.isMember;
    const key = JSON.stringify([here, members, room.membersBeyond, [...here, ...members].map((user) => this.#model.nameOf(user))]);
    if (this.#groups.dataset.key === key) return;
    this.#groups.dataset.key = key;
    const away = members.filter((user) => !here.includes(user)).sort();
    this.#groups.replaceChildren(this.#group(`Here now · ${amount(here.length)}`, here, "here"),
      away.length ? this.#group(`Away · ${amount(away.length)}`, away, "away") : "",
      room.membersBeyond > 0 ? make("p", { class: "beyond" }, `and ${amount(room.membersBeyond)} more members`) : "");
  }

  #begin(room) {
    this.#room = room;
    this.#name.value = "";
    this.#forgetDoubt();
  }

  #group(title, users, kind) {
    const items = users.slice(0, NAMED_MAX).map((user) => {
      const name = this.#model.nameOf(user);
      return make("li", { class: kind }, avatar(user, name),
        make("span", { class: "person" }, make("b", {}, name), saysNoMore(user, name) ? "" : make("small", {}, user)),
        user === this.#model.user ? make("em", {}, "you") : "");
    });
    const others = users.length > NAMED_MAX && make("li", {}, `and ${amount(users.length - NAMED_MAX)} others`);
    return make("section", {}, make("h3", {}, title), make("ul", {}, ...items, others || ""));
  }

  // ---- Adding -----------------------------------------------------------------------------------------------------

  #forgetDoubt() {
    this.#doubted = "";
    setText(this.#add, "Add");
    this.#say();
  }

  #say(...nodes) {
    this.#hint.classList.remove("error");
    this.#hint.replaceChildren(...nodes);
  }

  async #submit(event) {
    event.preventDefault();
    const [room, user, name] = [this.#room, idMeant(this.#name.value), nameFrom(this.#name.value)];
    if (!user || this.#add.disabled) return;
    const isWanted = () => this.#room === room && idMeant(this.#name.value) === user;
    if (room.members?.includes(user)) return this.#say(make("bdi", {}, name), " is a member already.");
    this.#add.disabled = true;
    try {
      if (this.#doubted !== user && await useOf(user, [room.roomId]) === null) {
        if (isWanted()) this.#doubt(user, name);
        return;
      }
      if (idOf(name) === user) this.#model.names.learn({ userId: user, username: name });
      await this.#model.people.invite(room.roomId, user);
      if (isWanted()) this.#tellAdded(room, user, name);
    } catch (error) {
      if (isWanted()) this.#fail(error);
    } finally {
      this.#add.disabled = false;
    }
  }

  #doubt(user, name) {
    this.#doubted = user;
    this.#say("Nobody called ", make("bdi", {}, name), " has been on this server. Check the name, or add it for later.");
    setText(this.#add, "Add anyway");
  }

  #tellAdded(room, user, name) {
    this.#name.value = "";
    this.#forgetDoubt();
    const undo = async () => {
      try {
        await this.#model.people.remove(room.roomId, user);
        if (this.#room === room) this.#say(make("bdi", {}, name), " was removed again.");
      } catch (error) {
        if (this.#room === room) this.#fail(error);
      }
    };
    this.#say(make("bdi", {}, name), " was added. ", make("button", { type: "button", class: "link", click: undo }, "Undo"));
  }

  #fail(error) {
    this.#say(sentenceOf(error));
    this.#hint.classList.add("error");
  }
}

async function copyLink(button) {
  try {
    await navigator.clipboard.writeText(location.href);
    setText(button, "Copied");
  } catch {
    setText(button, location.href);
  }
}
