/** The HTTP chapter: one article for each operation of `/openapi.json`. */

import { make } from "../app/dom.js";
import { contentOf, curl } from "./curl.js";
import { members, resolve, typeOf, unlessSaid } from "./schema.js";
import { code, inline, json, pretty, prose } from "./text.js";

/** Operations with path and method, ordered by their examples. */
export function operationsOf(document) {
  const all = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, path, method })));
  return all.sort((a, b) => a["x-step"] - b["x-step"]);
}

/** The path, with its parameters marked and break opportunities. */
export function pathNodes(path) {
  return path.split(/(\{[^}]*\})/).flatMap((part) =>
    part.startsWith("{") ? make("var", {}, part) : part.split(/(?=\/)/).flatMap((piece) => [make("wbr"), piece]));
}

export function methodBadge(method) {
  return make("span", { class: `method ${method}` }, method.toUpperCase());
}

function statusBadge(status) {
  return make("span", { class: `status s${status[0]}` }, status);
}

export function operationArticle(document, operation) {
  const id = operation.operationId;
  const search = [operation.method, operation.path, operation.summary, id, operation.description].join(" ").toLowerCase();
  return make("article", { id, class: "operation", "data-search": search },
    make("header", {},
      make("h3", {}, make("a", { href: `#${id}`, class: "self" }, operation.summary)),
      make("p", { class: "path" }, methodBadge(operation.method), make("code", {}, ...pathNodes(operation.path)))),
    make("div", { class: "columns" },
      make("div", { class: "facts" },
        ...prose(operation.description),
        make("p", { class: "hint" }, "Who may: ", ...inline(operation["x-permission"] ?? "everybody"), "."),
        parameters(operation),
        body(document, operation.requestBody),
        answers(operation.responses)),
      examples(operation)));
}

function section(title, ...children) {
  return make("section", {}, make("h4", {}, title), ...children);
}

function parameters(operation) {
  if (!operation.parameters?.length) return null;
  return section("Parameters", make("dl", { class: "members" }, ...operation.parameters.flatMap((parameter) => [
    make("dt", {}, make("code", {}, parameter.name), make("small", {}, parameter.required ? parameter.in : `${parameter.in}, optional`)),
    make("dd", {}, make("span", { class: "type" }, ...typeOf(parameter.schema)), unlessSaid(parameter.schema),
      make("span", { class: "about" }, ...inline(parameter.description))),
  ])));
}

function body(document, requestBody) {
  const [media, content] = contentOf(requestBody);
  if (!content) return null;
  const lines = content["x-line-schema"];
  return section("Body", make("p", { class: "media" }, lines ? `${media}, each line:` : media), members(resolve(document, lines ?? content.schema)));
}

function answers(responses) {
  const statuses = Object.entries(responses).sort(([a], [b]) => a - b);
  return section("Answers", make("dl", { class: "answers" }, ...statuses.flatMap(([status, response]) => [
    make("dt", {}, statusBadge(status)),
    make("dd", {}, ...prose(response.description), response["x-codes"] ? null : shape(response)),
  ])));
}

/** The schemas of successful bodies. */
function shape(response) {
  const [media, content] = contentOf(response);
  if (!content) return null;
  const events = content["x-event-schemas"];
  if (events) {
    const list = Object.entries(events).flatMap(([name, schema], index) => [index ? ", " : "", make("code", {}, name), " ", ...typeOf(schema)]);
    return make("p", { class: "type" }, "events: ", ...list);
  }
  if (content["x-line-schema"]) return make("p", { class: "type" }, "lines of ", ...typeOf(content["x-line-schema"]));
  return make("p", { class: "type" }, ...(media === "application/json" ? typeOf(content.schema) : [media]));
}

/** All examples of an operation, in the order in which they run. */
function examplesOf(operation) {
  const all = Object.entries(operation.responses).flatMap(([status, response]) => {
    const [media, content] = contentOf(response);
    const named = content?.examples ?? response["x-examples"] ?? {};
    return Object.entries(named).map(([name, example]) => ({ name, status, media, value: example.value, step: example["x-step"] }));
  });
  return all.sort((a, b) => a.step - b.step);
}

function examples(operation) {
  const all = examplesOf(operation);
  const shown = make("div", { class: "example" });
  const choose = (index) => {
    [...tabs.children].forEach((tab, place) => tab.setAttribute("aria-pressed", String(place === index)));
    shown.replaceChildren(...exampleNodes(operation, all[index]));
  };
  const tabs = make("div", { class: "tabs", role: "group", "aria-label": "Examples" }, ...all.map((example, index) =>
    make("button", { type: "button", click: () => choose(index) }, words(example.name), statusBadge(example.status))));
  choose(0);
  return make("div", { class: "examples" }, tabs, shown);
}

/** `idReused` → `id reused` */
const words = (name) => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

function exampleNodes(operation, example) {
  const command = curl(operation, example);
  const label = ["Answer ", statusBadge(example.status)];
  return [code([command], { copied: command, label: "Request" }), code(answerNodes(example), { label })];
}

function answerNodes({ status, value }) {
  if (typeof value === "string") return json(value);
  if (value && Object.keys(value).length) return json(pretty(value));
  return [status === "101" ? "the socket is open" : status === "204" ? "(no body)" : "{ … }"];
}
