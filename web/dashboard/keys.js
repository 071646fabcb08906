/** API keys of services: what each may, and a button to revoke it. */

import { $, make, setStatus, setText } from "../app/dom.js";
import { briefly, exact } from "../app/format.js";
import { ask, remove, sentenceOf } from "../app/request.js";
import { boardRow, boardTable } from "../app/table.js";

const COLUMNS = ["Name", "User", "May", "Made", "Ends", ""];

/** "rooms team-* rw; queues * r" */
function rights({ admin, rooms, queues, kv, scopes }) {
  if (admin) return "everything";
  const of = (name, all) => Object.entries(all ?? {}).map(([pattern, letters]) => `${name} ${pattern || "all"} ${letters}`);
  const all = [...of("rooms", rooms), ...of("queues", queues), ...of("keys", kv), ...(scopes?.length ? [scopes.join(", ")] : [])];
  return all.join("; ") || "nothing";
}

export class ApiKeys {
  #body = make("tbody");
  #status = make("p", { class: "board-status", role: "status" });
  #empty = make("p", { class: "empty", hidden: true }, "There is none. hubbub key create makes one.");

  constructor() {
    $("keys").replaceChildren(this.#status, boardTable(COLUMNS, this.#body), this.#empty);
  }

  async look() {
    try {
      const { keys } = await ask("GET", "auth/keys");
      setStatus(this.#status, "");
      this.#empty.hidden = keys.length > 0;
      this.#body.replaceChildren(...keys.map((key) => this.#row(key)));
    } catch (error) {
      setStatus(this.#status, sentenceOf(error), true);
    }
  }

  #row(key) {
    const row = boardRow(COLUMNS, { "data-key": key.keyId }, key.name, make("span", { class: "tag" }, key.keyId));
    setText(row.cells[1], key.user);
    setText(row.cells[2], rights(key));
    const time = (cell, text, otherwise) => {
      setText(cell, text ? briefly(new Date(text)) : otherwise);
      if (text) cell.title = exact(new Date(text));
    };
    time(row.cells[3], key.createdAt, "–");
    time(row.cells[4], key.expiresAt, "when revoked");
    row.cells[5].append(make("button", { type: "button", class: "danger", "aria-label": `Revoke the key ${key.name}`, click: () => this.#revoke(key) }, "Revoke"));
    return row;
  }

  async #revoke({ keyId, name }) {
    if (!window.confirm(`Revoke the key ${name}? Services that use it are refused at once, on every server. This cannot be undone.`)) return;
    try {
      await remove(`auth/keys/${keyId}`);
    } catch (error) {
      return setStatus(this.#status, sentenceOf(error), true);
    }
    await this.look();
  }
}
