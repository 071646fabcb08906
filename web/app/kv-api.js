/** Requests of the Keys view. Keys are text as the server writes them: percent-encoded. */

import { HubbubError } from "../hubbub.js";

/** Timeout of a request, in ms. */
const ANSWER_MAX = 15_000;
const PAGE = 100;

async function ask(path, body) {
  const response = await fetch(`/v1/kv${path}`, {
    signal: AbortSignal.timeout(ANSWER_MAX),
    ...(body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  });
  const answer = await response.json();
  if (!response.ok) throw new HubbubError(answer);
  return answer;
}

const checked = (item) => {
  if (item.code && item.code !== "unknown_key") throw new HubbubError(item);
  return item;
};

/** A page of keys, with the revision to watch from. */
export const listKeys = (prefix, after) =>
  ask(`?limit=${PAGE}&prefix=${encodeURIComponent(prefix)}${after ? `&after=${encodeURIComponent(after)}` : ""}`);

// One request for all of these: a path would lose segments that are . or ..
/** @returns `{key, value or base64, revision, expiresAt?}`, with `code` if there is no such key */
export const getKey = async (key) => checked((await ask("", { get: [key] })).get[0]);
export const putKey = async (put) => checked((await ask("", { put: [put] })).put[0]);
export const deleteKey = async (key) => checked((await ask("", { delete: [key] })).delete[0]);

/**
 * Calls `changed(kind, key)` for each change after a revision, until the returned function is called. Reconnects by
 * itself. Calls `lost()` if the server no longer keeps the changes, or is another one.
 */
export function watchKeys(prefix, after, changed, lost) {
  const events = new EventSource(`/v1/kv/watch?after=${after}&prefix=${encodeURIComponent(prefix)}`);
  for (const kind of ["put", "delete", "expire"]) {
    events.addEventListener(kind, (event) => changed(kind, JSON.parse(event.data).key));
  }
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) lost();
  });
  return () => events.close();
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
