/** Open connections of this server, with a button to close each. */

import { $, make, setStatus, setText } from "../app/dom.js";
import { age, exact } from "../app/format.js";
import { ask, remove, sentenceOf } from "../app/request.js";
import { boardRow, boardTable } from "../app/table.js";

const COLUMNS = ["Who", "What", "From", "Open for", "Rooms", ""];
const KINDS = { webSocket: "WebSocket", line: "line protocol", roomEvents: "events of a room", keyEvents: "changes of keys", dashboard: "dashboard" };
const LOOK_EVERY = 10_000;
const PAGE = 100;
/** Most rows of one answer. */
const ROWS_MAX = 1_000;

export class Connections {
  #body = make("tbody");
  #status = make("p", { class: "board-status", role: "status" });
  #more = make("button", { type: "button", hidden: true, click: () => this.#showMore() }, "Show more");
  #rows = new Map();
  #limit = PAGE;
  #timer = null;

  constructor() {
    $("connections").replaceChildren(this.#status, boardTable(COLUMNS, this.#body), this.#more);
    document.addEventListener("visibilitychange", () => this.look());
  }

  #showMore() {
    this.#limit = Math.min(ROWS_MAX, this.#limit + 3 * PAGE);
    this.look();
  }

  async look() {
    clearTimeout(this.#timer);
    if (document.visibilityState !== "visible") return;
    const mine = this.#timer = setTimeout(() => this.look(), LOOK_EVERY);
    try {
      const { connections, next } = await ask("GET", `connections?limit=${this.#limit}`);
      if (this.#timer === mine) this.#draw(connections, next);
    } catch (error) {
      setStatus(this.#status, sentenceOf(error), true);
    }
  }

  #draw(connections, next) {
    const count = `${connections.length}${next === null ? "" : " of more"}`;
    setStatus(this.#status, `${count} open: sockets and event streams, the oldest first. Health counts the connections of plain requests, too.`);
    this.#more.hidden = next === null || this.#limit >= ROWS_MAX;
    // Rows stay the same elements, so that a button keeps the focus.
    this.#rows = new Map(connections.map((one) => [one.connectionId, this.#rows.get(one.connectionId) ?? this.#row(one)]));
    for (const { connectionId, openedAt, rooms, roomIds } of connections) {
      const row = this.#rows.get(connectionId);
      setText(row.cells[3], age(new Date(openedAt)));
      setText(row.cells[4], rooms === 0 ? "–" : `${roomIds.slice(0, 3).join(", ")}${rooms > 3 ? ` and ${rooms - Math.min(3, roomIds.length)} more` : ""}`);
      row.cells[4].title = roomIds.join(", ");
    }
    const rows = [...this.#rows.values()];
    const isSame = rows.length === this.#body.children.length && rows.every((row, index) => this.#body.children[index] === row);
    if (!isSame) this.#body.replaceChildren(...rows);
  }

  #row({ connectionId, kind, userId, keyId, address, openedAt }) {
    const who = userId ?? "nobody named";
    const row = boardRow(COLUMNS, { "data-connection": connectionId }, make("bdi", {}, who), keyId && make("span", { class: "tag" }, `key ${keyId}`));
    setText(row.cells[1], KINDS[kind] ?? kind);
    setText(row.cells[2], address);
    row.cells[3].title = exact(new Date(openedAt));
    row.cells[5].append(make("button", { type: "button", class: "danger", "aria-label": `Close the connection of ${who} from ${address}`, click: () => this.#close(connectionId, who) }, "Close"));
    return row;
  }

  async #close(id, who) {
    if (!window.confirm(`Close this connection of ${who}? Its client will come back unless its key or token is revoked.`)) return;
    try {
      await remove(`connections/${id}`);
    } catch (error) {
      return setStatus(this.#status, sentenceOf(error), true);
    }
    await this.look();
  }
}
