/** What the Keys view asks the server. Keys are in text as the server writes them: percent-encoded. */

import { HubbubError } from "../hubbub.js";

/** Milliseconds for an answer. */
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

/** A page of keys, with the revision to watch behind. */
export const listKeys = (prefix, after) =>
  ask(`?limit=${PAGE}&prefix=${encodeURIComponent(prefix)}${after ? `&after=${encodeURIComponent(after)}` : ""}`);

// One request for all of these: a path would lose segments that are . or ..
/** @returns `{key, value or base64, revision, expiresAt?}`, with `code` when there is no such key */
export const getKey = async (key) => checked((await ask("", { get: [key] })).get[0]);
export const putKey = async (put) => checked((await ask("", { put: [put] })).put[0]);
export const deleteKey = async (key) => checked((await ask("", { delete: [key] })).delete[0]);

/**
 * Calls `changed(kind, key)` for each change behind a revision, until the returned function is called. Reconnects by
 * itself; `lost()` when the server keeps the changes no longer, or is another one.
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

/** "a b" → "a%20b": what somebody wrote as the server writes it; bytes may be given as %XX. */
export const keyOf = (text) => text.replace(/[^!$&-;=@-Z_a-z~%]/gu, (letter) => encodeURIComponent(letter));

/** The key for people, or as it is written where it is no text. */
export function readable(key) {
  try {
    const text = decodeURIComponent(key);
    return /\p{C}/u.test(text) ? key : text;
  } catch {
    return key;
  }
}
