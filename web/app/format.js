/** Formats names, times and texts. */

import { make } from "./dom.js";

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const LONG_DATE = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const LONG_DATE_YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

const AMOUNT = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

const DAY_MS = 86_400_000;

export const clock = (date) => CLOCK.format(date);
export const exact = (date) => EXACT.format(date);

export function isSameDay(a, b) {
  return a.getDate() === b.getDate() && a.getMonth() === b.getMonth() && a.getFullYear() === b.getFullYear();
}

/** The shortest form, for the list of rooms. */
export function briefly(date, now = new Date()) {
  if (isSameDay(date, now)) return CLOCK.format(date);
  if (now - date < 6 * DAY_MS) return WEEKDAY.format(date);
  return DATE.format(date);
}

/** For the separator between two days. */
export function dayName(date, now = new Date()) {
  if (isSameDay(date, now)) return "Today";
  if (isSameDay(date, new Date(now - DAY_MS))) return "Yesterday";
  return date.getFullYear() === now.getFullYear() ? LONG_DATE.format(date) : LONG_DATE_YEAR.format(date);
}

export function count(number) {
  return number > 999 ? "999+" : String(number);
}

/** 12345.6 → "12,345.6", in the reader's locale. */
export const amount = (number) => AMOUNT.format(number);

/** Time between two moments, in its largest unit: "12 s", "3 min", "5 h", "2 d". */
export function age(from, to = new Date()) {
  const seconds = Math.max(0, Math.round((to - from) / 1_000));
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6_000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** "Ada Lovelace" → "AL", "bob" → "B". */
export function initials(name) {
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters = words.length > 1 ? [words[0], words.at(-1)] : words.slice(0, 1);
  return letters.map((word) => [...word][0].toUpperCase()).join("") || "?";
}

/** The same hue for the same user everywhere. */
export function hue(userId) {
  let hash = 2166136261;
  for (let i = 0; i < userId.length; i++) hash = Math.imul(hash ^ userId.charCodeAt(i), 16777619);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % 360;
}

export function avatar(userId, name = userId) {
  const element = make("span", { class: "avatar", "aria-hidden": "true" }, initials(name));
  element.style.setProperty("--hue", hue(userId));
  return element;
}

/** Whether marks are stacked on a letter, higher than a line. Scripts that people write have two at most. */
export const isStacked = (text) => /\p{M}{3}/u.test(text);

const LINK = /https?:\/\/[^\s<>"']+/g;

/** A text as text nodes. Only http:// and https:// addresses become links. */
export function textNodes(text) {
  if (!text.includes("://")) return [text];
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(LINK)) {
    const url = match[0].replace(/[.,;:!?)\]}]+$/, "");
    nodes.push(text.slice(from, match.index));
    nodes.push(make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url));
    from = match.index + url.length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

/** "Firefox on Linux" out of what a browser calls itself, as far as it says. */
export function browserName(agent) {
  const find = (names) => names.find(([mark]) => agent.includes(mark))?.[1];
  const browser = find([["Firefox/", "Firefox"], ["Edg/", "Edge"], ["OPR/", "Opera"], ["Chrome/", "Chrome"], ["Safari/", "Safari"], ["curl/", "curl"]]);
  const system = find([["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS", "macOS"], ["Linux", "Linux"]]);
  return [browser ?? "Another program", system && `on ${system}`].filter(Boolean).join(" ");
}
