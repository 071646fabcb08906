/** Helpers for the DOM. Neither they nor other parts of the page create elements from text. */

export const $ = (id) => document.getElementById(id);

/**
 * Creates an element. `attributes`: `class`, `title`, …; a function is a listener; `true` = an empty attribute.
 * Children that are strings become text, whatever they contain.
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/** Writes only what changed: every write to the DOM costs a layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows a remark, or why something failed. */
export function setStatus(element, text, isError = false) {
  setText(element, text);
  element.classList.toggle("error", isError);
}

/** Calls `action` at most once per `interval` ms, the last time after the last request. */
export function throttled(interval, action) {
  let timer = null;
  let last = -Infinity;
  return () => {
    if (timer !== null) return;
    const wait = Math.max(0, last + interval - performance.now());
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      action();
    }, wait);
  };
}

export class Emitter {
  #listeners = new Map();

  on(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  emit(event, value) {
    for (const listener of this.#listeners.get(event) ?? []) listener(value);
  }
}
