/** Requests of the Keys view. Keys are text as the server writes them: percent-encoded. */

import { HubbubError } from "../hubbub.js";
import { openEvents } from "./events.js";
import { ask } from "./request.js";

const PAGE = 100;

const checked = (item) => {
  if (item.code && item.code !== "unknown_key") throw new HubbubError(item);
  return item;
};

/** A page of keys, with the revision to watch from. */
export const listKeys = (prefix, after) =>
  ask("GET", `kv?limit=${PAGE}&prefix=${encodeURIComponent(prefix)}${after ? `&after=${encodeURIComponent(after)}` : ""}`);

// One request for all of these: a path would lose segments that are . or ..
/** @returns `{key, value or base64, revision, expiresAt?}`, with `code` if there is no such key */
export const getKey = async (key) => checked((await ask("POST", "kv", { get: [key] })).get[0]);
/** The revision to watch a key from, to miss nothing that is not read yet. */
export const revisionNow = async (key) => (await ask("GET", `kv?limit=1&prefix=${encodeURIComponent(key)}`)).revision;
export const putKey = async (put) => checked((await ask("POST", "kv", { put: [put] })).put[0]);
export const deleteKey = async (key) => checked((await ask("POST", "kv", { delete: [key] })).delete[0]);

const CHANGES = new Set(["put", "delete", "expire"]);

/**
 * Calls `changed(key, revision)` for each change after a revision, until the returned function is called, or `lost(pause)`
 * is: then changes may be missing, and it is to be read again after so many ms.
 */
export function watchKeys(prefix, after, changed, lost) {
  const path = `/v1/kv/watch?after=${after}&prefix=${encodeURIComponent(prefix)}`;
  return openEvents(path, (name, { key, revision }) => { if (CHANGES.has(name)) changed(key, revision); }, lost);
}

/** "a b" → "a%20b": encodes user input as the server does. Bytes may be given as %XX. */
export const keyOf = (text) => text.replace(/[^!$&-;=@-Z_a-z~%]/gu, (letter) => encodeURIComponent(letter));

/** The key as text, or still encoded if it is not text. */
export function readable(key) {
  try {
    const text = decodeURIComponent(key);
    return /\p{C}/u.test(text) ? key : text;
  } catch {
    return key;
  }
}
