/** Text with a little Markdown, JSON in colours, and code that can be copied. */

import { icon, make } from "../app/dom.js";

/** Paragraphs with `code` in them. */
export function prose(text) {
  return (text ?? "").split("\n\n").filter(Boolean).map((paragraph) => make("p", {}, ...inline(paragraph)));
}

/** One line with `code` in it, as nodes. */
export function inline(text) {
  return (text ?? "").split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)/g;

/** JSON, or lines or events of it, with its tokens coloured. */
export function json(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [whole, string, colon, word, number] = match;
    nodes.push(text.slice(end, match.index));
    if (string) nodes.push(make("span", { class: colon ? "key" : "string" }, string), colon ?? "");
    else nodes.push(make("span", { class: word ? "word" : "number" }, word ?? number));
    end = match.index + whole.length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

/** A value in readable form: what fits on a line is on one. */
export function pretty(value, indent = "") {
  const line = oneLine(value);
  if (typeof value !== "object" || value === null || line.length + indent.length <= 72) return line;
  const inner = `${indent}  `;
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((item) => inner + pretty(item, inner))
    : Object.entries(value).map(([key, item]) => `${inner}${JSON.stringify(key)}: ${pretty(item, inner)}`);
  return `${isList ? "[" : "{"}\n${items.join(",\n")}\n${indent}${isList ? "]" : "}"}`;
}

/** A value on one line, with break opportunities. */
export function oneLine(value) {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  const members = Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${oneLine(item)}`);
  return members.length ? `{ ${members.join(", ")} }` : "{}";
}

/** A block of code. The button copies `copied`. */
export function code(nodes, { copied = null, label = null } = {}) {
  const pre = make("pre", { tabindex: "0" }, make("code", {}, ...nodes));
  const block = make("div", { class: "code" }, label && make("div", { class: "code-label" }, ...[label].flat()), pre);
  if (copied !== null) block.append(copyButton(copied, pre));
  return block;
}

function copyButton(text, pre) {
  const button = make("button", { class: "icon copy", type: "button", "aria-label": "Copy", title: "Copy" }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.replaceChildren(icon("check"));
      setTimeout(() => button.replaceChildren(icon("copy")), 1500);
    } catch {
      // The clipboard is not allowed here: select the text, so that the user can copy it by keyboard.
      getSelection().selectAllChildren(pre);
    }
  });
  return button;
}
