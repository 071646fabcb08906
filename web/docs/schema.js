/** Draws JSON Schemas as lists of members. */

import { make } from "../app/dom.js";
import { inline } from "./text.js";

/** A short description of a schema, as nodes. */
export function typeOf(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [make("a", { href: `#schema-${name}` }, name)];
  }
  if ("const" in schema) return [make("code", {}, JSON.stringify(schema.const))];
  if (schema.enum) {
    // The codes have a table of their own.
    if (schema["x-codes"]) return [make("a", { href: "#errors" }, "one of the codes")];
    return separated(schema.enum.map((one) => [make("code", {}, one === "" ? "\"\"" : String(one))]));
  }
  if (schema.anyOf) return separated(schema.anyOf.map(typeOf));
  if (schema.type === "array") return ["array of ", ...(schema.items ? typeOf(schema.items) : ["anything"])];
  if (!schema.type) return ["any JSON"];
  return [[[schema.type].flat().join(" or "), schema.format && `(${schema.format})`, range(schema)].filter(Boolean).join(" ")];
}

function separated(lists) {
  return lists.flatMap((nodes, index) => (index ? [" | ", ...nodes] : nodes));
}

function range({ minimum, maximum, minLength, maxLength }) {
  const least = minimum ?? minLength;
  const most = maximum ?? maxLength;
  const unit = minLength !== undefined || maxLength !== undefined ? " characters" : "";
  if (least !== undefined && most !== undefined) return `${least} to ${most}${unit}`;
  if (most !== undefined) return `≤ ${most}${unit}`;
  if (least === undefined) return "";
  return unit && least === 1 ? "not empty" : `≥ ${least}${unit}`;
}

/** The members of an object as a list; other schemas as one line. */
export function members(schema) {
  const entries = Object.entries(schema.properties ?? {});
  if (!entries.length) return make("p", { class: "type" }, ...typeOf(schema));
  const required = new Set(schema.required ?? []);
  return make("dl", { class: "members" }, ...entries.flatMap(([name, member]) => {
    const inner = member.type === "array" ? member.items : member;
    return [
      make("dt", {}, make("code", {}, name), required.has(name) ? null : make("small", {}, "optional")),
      make("dd", {}, make("span", { class: "type" }, ...typeOf(member)), unlessSaid(member),
        member.description && make("span", { class: "about" }, ...inline(member.description)),
        inner?.properties && members(inner)),
    ];
  }));
}

/** The default, if there is one. */
export function unlessSaid(schema) {
  return schema.default === undefined ? null : make("span", { class: "default" }, `unless said: ${schema.default}`);
}

/** A reference's target, or the schema itself. */
export function resolve(document, schema) {
  if (!schema?.$ref) return schema;
  return schema.$ref.slice(2).split("/").reduce((part, key) => part[key], document);
}

/** The articles of all named schemas. */
export function schemaArticles(schemas) {
  return Object.entries(schemas).map(([name, schema]) =>
    make("article", { id: `schema-${name}`, class: "schema", "data-search": `${name} ${schema.description ?? ""}`.toLowerCase() },
      make("h3", {}, make("a", { href: `#schema-${name}`, class: "self" }, name)),
      schema.description && make("p", { class: "about" }, ...inline(schema.description)),
      members(schema)));
}
