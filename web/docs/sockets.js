/** The sockets chapter: the channels of `/asyncapi.json`. */

import { make } from "../app/dom.js";
import { code, json, oneLine, pretty, prose } from "./text.js";
import { members } from "./schema.js";

export function channelSection(document, name) {
  const channel = document.channels[name];
  return make("section", { class: "channel", id: `channel-${name}` },
    make("header", {}, make("h2", {}, make("code", {}, channel.address)), ...prose(channel.description)),
    ...Object.keys(channel.messages).map((key) => frameArticle(document, key)),
    conversation(channel, name));
}

/** The frames of a channel, the client's first. */
export function framesOf(document, name) {
  return Object.keys(document.channels[name].messages).map((key) => ({ key, ...frame(document, key) }));
}

function frame(document, key) {
  const operation = document.operations[key];
  return { message: document.components.messages[key], isFromClient: operation.action === "receive", replies: operation.reply?.messages ?? [] };
}

export function direction(isFromClient) {
  return make("span", { class: isFromClient ? "direction up" : "direction down" }, isFromClient ? "client" : "server");
}

function frameArticle(document, key) {
  const { message, isFromClient, replies } = frame(document, key);
  const names = replies.flatMap((reply, index) => {
    const name = reply.$ref.split("/").pop();
    return [index ? " or " : "", make("a", { href: `#frame-${name}` }, name)];
  });
  return make("article", { id: `frame-${key}`, class: "operation frame", "data-search": `${key} ${message.title} websocket socket`.toLowerCase() },
    make("header", {},
      make("h3", {}, make("a", { href: `#frame-${key}`, class: "self" }, message.title)),
      make("p", { class: "path" }, direction(isFromClient), make("code", {}, key), names.length ? make("span", { class: "replies" }, "answered by ", ...names) : null)),
    make("div", { class: "columns" },
      make("div", { class: "facts" }, members(message.payload)),
      make("div", { class: "examples" }, ...examples(message.examples))));
}

function examples(all) {
  const distinct = [...new Set(all.map((example) => pretty(example.payload)))];
  return distinct.slice(0, 3).map((text) => code(json(text), { copied: text }));
}

function conversation(channel, name) {
  const lines = channel["x-conversation"].map((line) =>
    make("li", { class: line.from === "client" ? "up" : "down" },
      make("span", { class: "who" }, line.socket === "client" ? (line.from === "client" ? "client" : "server") : line.from === "client" ? line.socket : `to ${line.socket}`),
      make("code", {}, ...json(oneLine(line.payload)))));
  return make("article", { id: `talk-${name}`, class: "talk", "data-search": `conversation ${name} websocket socket` },
    make("h3", {}, "All of it, as it happens on a fresh server"),
    make("ol", {}, ...lines));
}

/** The close codes. */
export function closeCodes(document) {
  const codes = Object.values(document.channels)[0]["x-close-codes"];
  return make("article", { id: "close-codes", "data-search": "close codes reconnect websocket socket " + codes.map((one) => one.code).join(" ") },
    make("h2", {}, "Close codes"),
    table(["Code", "Meaning", "Reconnect"], codes.map((one) => [make("code", {}, one.code), one.meaning, make("span", {}, ...prose(one.reconnect))])));
}

export function table(titles, rows) {
  return make("div", { class: "table" }, make("table", {},
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", {}, title)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell)))))));
}
