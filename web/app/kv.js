/** The Keys view: keys by prefix, page by page, updated live; and one key in detail. */

import { $, icon, make, setStatus, setText, throttled } from "./dom.js";
import { sentenceOf } from "./request.js";
import { listKeys, keyOf, readable, watchKeys } from "./kv-api.js";
import { KeyView } from "./kv-key.js";
import { boardRow, boardTable } from "./table.js";

const COLUMNS = ["Key", "Bytes", "Revision", "Expires"];
/** Shortest time between two reloads of the list, in ms. */
const LOOK_EVERY = 500;
/** Pause before the list is asked for again after that failed, in ms. */
const AGAIN_AFTER = 2_000;

/** `#kv` and `#kv/KEY`. @returns null elsewhere, "" for the list */
function keyInAddress(hash) {
  const match = /^#kv(?:\/(.+))?$/.exec(hash);
  return match && (match[1] ?? "");
}

export const addressOf = (key) => `#kv/${key}`;

export class KeysView {
  #element = $("kv");
  #detail = new KeyView();
  #prefix = "";
  /** Number of the shown list; answers for earlier ones are ignored. */
  #shown = 0;
  /** Number of shown pages. */
  #pages = 1;
  #unwatch = () => {};
  #again = null;
  #body = make("tbody");
  #status = make("p", { class: "board-status", role: "status" });
  #empty = make("p", { class: "empty", hidden: true });
  #more = make("button", { type: "button", click: () => this.#showMore() }, "More");
  #refresh = throttled(LOOK_EVERY, () => this.#look());

  /** Shows what the address names, if it belongs to this view. @returns its title, or null */
  show(hash) {
    const key = keyInAddress(hash);
    this.#element.hidden = key === null;
    this.#close();
    if (key === null) this.#element.replaceChildren();
    else if (key === "") this.#open();
    else this.#element.replaceChildren(this.#detail.open(key));
    return key && readable(key) || (key === null ? null : "Keys");
  }

  #close() {
    this.#shown++;
    this.#unwatch();
    clearTimeout(this.#again);
    this.#detail.close();
  }

  #open() {
    this.#pages = 1;
    this.#body.replaceChildren();
    setStatus(this.#status, "");
    this.#more.hidden = this.#empty.hidden = true;
    this.#element.replaceChildren(
      make("header", { class: "room-head" },
        make("a", { class: "icon-link only-narrow", href: "#/", "aria-label": "Back to rooms" }, icon("back")),
        make("div", { class: "room-title" }, make("h1", {}, "Keys"), make("p", {}, "Values by key, as they change"))),
      make("div", { class: "board-body" },
        this.#form(),
        this.#status,
        boardTable(COLUMNS, this.#body),
        this.#empty,
        this.#more));
    this.#begin();
  }

  #form() {
    const prefix = make("input", {
      id: "kv-prefix", type: "search", value: this.#prefix, placeholder: "Begins with …",
      "aria-label": "Keys that begin with", dir: "auto", spellcheck: "false", autocomplete: "off",
      input: () => {
        this.#prefix = prefix.value;
        this.#pages = 1;
        this.#begin();
      },
    });
    const name = make("input", { id: "kv-new", placeholder: "Open or create", "aria-label": "Key to open or create", dir: "auto", required: true, spellcheck: "false", autocomplete: "off" });
    const submit = (event) => {
      event.preventDefault();
      location.hash = addressOf(keyOf(name.value));
    };
    return make("form", { id: "open-key", class: "board-form", submit },
      make("div", { class: "field grow" }, prefix),
      make("div", { class: "field grow" }, name),
      make("button", { class: "primary", type: "submit" }, "Open"));
  }

  /** Reloads the shown pages, and watches later changes. */
  async #begin() {
    this.#unwatch();
    clearTimeout(this.#again);
    const shown = ++this.#shown;
    const prefix = keyOf(this.#prefix);
    const again = (pause = AGAIN_AFTER) => {
      if (this.#shown === shown) this.#again = setTimeout(() => this.#begin(), pause);
    };
    const revision = await this.#look();
    if (this.#shown !== shown) return;
    if (revision === null) again();
    else this.#unwatch = watchKeys(prefix, revision, () => this.#refresh(), again);
  }

  #showMore() {
    this.#pages++;
    this.#look();
  }

  /** Draws the shown pages. @returns the revision to watch from, null if there was no answer */
  async #look() {
    const shown = this.#shown;
    const keys = [];
    let revision = null;
    let after = null;
    try {
      for (let page = 0; page < this.#pages && (page === 0 || after !== null); page++) {
        const listed = await listKeys(keyOf(this.#prefix), after);
        if (this.#shown !== shown) return null;
        keys.push(...listed.keys);
        revision ??= listed.revision;
        after = listed.next;
      }
    } catch (error) {
      if (this.#shown === shown) setStatus(this.#status, sentenceOf(error), true);
      return null;
    }
    setStatus(this.#status, "");
    setText(this.#empty, this.#prefix ? `No key begins with “${this.#prefix}”.` : "There is no key yet.");
    this.#empty.hidden = keys.length > 0;
    this.#more.hidden = after === null;
    this.#body.replaceChildren(...keys.map(row));
    return revision;
  }
}

function row(info) {
  const expires = info.expiresAt ? new Date(info.expiresAt).toLocaleString() : "–";
  const row = boardRow(COLUMNS, { "data-key": info.key }, make("a", { href: addressOf(info.key) }, readable(info.key)));
  [info.bytes.toLocaleString(), String(info.revision), expires].forEach((text, index) => setText(row.cells[index + 1], text));
  return row;
}
