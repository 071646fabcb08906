/**
 * Server-Sent Events over `fetch`: they carry the token of the tab, and a stream of which nothing comes any more is noticed.
 * An `EventSource` does neither.
 */

import { HubbubError } from "../hubbub.js";
import { withToken } from "./token.js";

/** The server sends something every 15 s, if only a comment. After three times that the connection is dead, in ms. */
const SILENCE_MAX = 45_000;
/** Pause before the next connection, in ms, unless the server names another, and the longest that it may name. */
const RETRY = 3_000;
const RETRY_MAX = 60_000;
/** Longest event, in characters. */
const EVENT_MAX = 16 * 1024 * 1024;

/**
 * Reads the events of one connection: `onEvent(name, data)` for each, then `onEnd(pause)` once it is over, however it came
 * to that: `pause` is how many ms to wait before the next one, with a random part, so that not all come back at once.
 * @returns a function that ends it; nothing is called after that
 */
export function openEvents(path, onEvent, onEnd) {
  const abort = new AbortController();
  let isWanted = true;
  let retry = RETRY;
  const take = (event) => {
    if (event.retry !== undefined) retry = Math.min(Number(event.retry) || RETRY, RETRY_MAX);
    if (event.data === undefined || !isWanted) return;
    if (event.name === "error") throw new HubbubError(JSON.parse(event.data));
    const data = JSON.parse(event.data);
    // A fault of a view does not end the stream.
    try { onEvent(event.name, data); } catch (error) { reportError(error); }
  };
  read(path, abort, take)
    .catch((error) => { if (isWanted) console.warn("hubbub: events ended:", error.message); })
    .finally(() => {
      abort.abort();
      if (isWanted) onEnd(retry * (1 + Math.random() / 2));
    });
  return () => {
    isWanted = false;
    abort.abort();
  };
}

async function read(path, abort, take) {
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE_MAX);
  };
  heard();
  try {
    const response = await fetch(path, { headers: withToken({ accept: "text/event-stream" }), signal: abort.signal });
    if (!response.ok) throw new HubbubError({ code: "unexpected", detail: `status ${response.status}` });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      text += value;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) take(parse(text.slice(0, end)));
      if (text.length > EVENT_MAX) throw new HubbubError({ code: "unexpected", detail: "an event without an end" });
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The fields of an event; a comment has none. */
function parse(text) {
  const event = {};
  for (const line of text.split("\n")) {
    const [, field, value] = /^(event|data|retry): ?(.*)$/.exec(line) ?? [];
    if (field) event[field === "event" ? "name" : field] = value;
  }
  return event;
}
