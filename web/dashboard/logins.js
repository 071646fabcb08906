/** Where people are logged in, with a button to end each login. Not shown where there are no accounts. */

import { $, make, setStatus, setText } from "../app/dom.js";
import { briefly, browserName, exact } from "../app/format.js";
import { hasAccounts } from "../app/login.js";
import { ask, remove, sentenceOf } from "../app/request.js";
import { boardRow, boardTable } from "../app/table.js";

const COLUMNS = ["Who", "From", "With", "Since", "Ends", ""];
/** Rows of the table, at most. */
const ROWS_MAX = 500;

export class Logins {
  #body = make("tbody");
  #status = make("p", { class: "board-status", role: "status" });
  #empty = make("p", { class: "empty", hidden: true }, "Nobody is logged in.");
  #hasAccounts = false;

  constructor() {
    $("logins").replaceChildren(this.#status, boardTable(COLUMNS, this.#body), this.#empty);
  }

  async look() {
    this.#hasAccounts ||= await hasAccounts();
    if (!this.#hasAccounts) return;
    try {
      const { logins, next } = await ask("GET", `auth/logins?limit=${ROWS_MAX}`);
      $("logins").parentElement.hidden = false;
      setStatus(this.#status, next === null ? "" : `${ROWS_MAX} of more; hubbub user logins lists all`);
      this.#empty.hidden = logins.length > 0;
      logins.sort((a, b) => a.user.localeCompare(b.user) || a.createdAt.localeCompare(b.createdAt));
      this.#body.replaceChildren(...logins.map((login) => this.#row(login)));
    } catch (error) {
      $("logins").parentElement.hidden = false;
      setStatus(this.#status, sentenceOf(error), true);
    }
  }

  #row(login) {
    const row = boardRow(COLUMNS, { "data-login": login.loginId }, make("bdi", {}, login.user));
    setText(row.cells[1], login.address);
    setText(row.cells[2], browserName(login.userAgent));
    row.cells[2].title = login.userAgent;
    for (const [cell, text] of [[row.cells[3], login.createdAt], [row.cells[4], login.expiresAt]]) {
      setText(cell, briefly(new Date(text)));
      cell.title = exact(new Date(text));
    }
    row.cells[5].append(make("button", { type: "button", class: "danger", "aria-label": `Log out ${login.user} from ${login.address}`, click: () => this.#end(login) }, "Log out"));
    return row;
  }

  async #end({ loginId, user }) {
    if (!window.confirm(`Log out ${user} there? With the password, ${user} can log in again.`)) return;
    try {
      await remove(`auth/logins/${loginId}`);
    } catch (error) {
      return setStatus(this.#status, sentenceOf(error), true);
    }
    await this.look();
  }
}
