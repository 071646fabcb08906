/** How the server is, in words; who writes most; and what was refused. */

import { $, make, setText } from "../app/dom.js";
import { amount } from "../app/format.js";
import { boardRow, boardTable } from "../app/table.js";

const REFUSED = "refused.";
const WORDS = { UP: "fine", DEGRADED: "look at it", DOWN: "down" };
/** Rows of a list of those with most messages are compared over so long. */
const TREND_MS = 60_000;

/** Components as a list. Only what differs is drawn anew: a screen reader is not interrupted every five seconds. */
export class Health {
  #shown = "";

  show(components) {
    const now = JSON.stringify(components);
    if (now === this.#shown) return;
    this.#shown = now;
    $("health").replaceChildren(...components.map(({ component, status, summary, remedy }) => make("li", { class: status.toLowerCase(), "data-component": component },
      make("p", {}, make("b", {}, component), " ", make("span", { class: "word" }, WORDS[status])),
      make("p", { class: "summary" }, summary),
      remedy && make("p", { class: "remedy" }, make("b", {}, "What to do: "), remedy))));
  }
}

/** Those with most messages, and how many came in the last minute as far as this page has seen. */
export class Top {
  #body = make("tbody");
  #columns;
  #member;
  #empty;
  /** Earlier lists, oldest first. */
  #before = [];

  constructor(id, title, member, empty) {
    this.#columns = [title, "Messages", "New a minute"];
    this.#member = member;
    this.#empty = make("p", { class: "empty" }, empty);
    $(id).replaceChildren(boardTable(this.#columns, this.#body), this.#empty);
  }

  show(rows) {
    const [now, counts] = [performance.now(), new Map(rows.map((row) => [row[this.#member], row.messages]))];
    // The newest of those that are old enough, else the oldest.
    while (this.#before.length > 1 && now - this.#before[1].now >= TREND_MS) this.#before.shift();
    const before = this.#before[0];
    this.#before.push({ now, counts });
    this.#empty.hidden = rows.length > 0;
    this.#body.replaceChildren(...[...counts].map(([name, messages]) => {
      const row = boardRow(this.#columns, {}, name);
      const earlier = before?.counts.get(name);
      const trend = earlier === undefined || now === before.now ? "–" : amount(Math.max(0, messages - earlier) / (now - before.now) * 60_000);
      setText(row.cells[1], amount(messages));
      setText(row.cells[2], trend);
      return row;
    }));
  }
}

/** Refusals by reason; reasons that did not come up are left out. */
export class Refusals {
  #body = make("tbody");
  #columns = ["Reason", "Last minute", "Last hour"];
  #empty = make("p", { class: "empty" }, "Nothing was refused in the last hour.");

  constructor() {
    $("refusals").replaceChildren(boardTable(this.#columns, this.#body), this.#empty);
  }

  show(figures) {
    const reasons = [...figures.series.keys()].filter((name) => name.startsWith(REFUSED));
    const rows = reasons.map((name) => {
      const minute = figures.total(name, 60);
      // The rows of ten seconds come late by up to ten.
      return [name.slice(REFUSED.length), minute, Math.max(figures.total(name, 3_600), figures.total(name, 300))];
    }).filter(([, , hour]) => hour >= 0.5).sort((a, b) => b[2] - a[2]);
    this.#empty.hidden = rows.length > 0;
    this.#body.replaceChildren(...rows.map(([reason, minute, hour]) => {
      const row = boardRow(this.#columns, { "data-reason": reason }, make("code", {}, reason));
      setText(row.cells[1], amount(Math.round(minute)));
      setText(row.cells[2], amount(Math.round(hour)));
      return row;
    }));
  }
}
