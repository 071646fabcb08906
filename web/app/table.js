/**
 * Tables of the boards. On a narrow screen each row becomes a card, and its cells show the titles of their columns. Roles
 * are explicit, because a browser may drop them from elements with another `display`.
 */

import { make } from "./dom.js";

export function boardTable(columns, body) {
  body.setAttribute("role", "rowgroup");
  const titles = columns.map((name) => make("th", { scope: "col", role: "columnheader" }, name));
  return make("div", { class: "table-wrap" }, make("table", { class: "board-table", role: "table" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...titles)), body));
}

/** A row with its first cell; the others are empty. */
export function boardRow(columns, attributes, ...first) {
  return make("tr", { role: "row", ...attributes }, make("th", { scope: "row", role: "rowheader" }, ...first),
    ...columns.slice(1).map((name) => make("td", { role: "cell", "data-label": name })));
}
